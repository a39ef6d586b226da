"""One trace_processor process, real or misbehaving."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.trace_processor import wire
from service.engine.trace_processor.process import TraceProcessor, joined
from service.streaming.codec import plain_chunks
from service.trace.errors import EngineFailed
from tests.engine.conftest import DOUBLES, ENDLESS_ROWS, fed, in_time, launch, within


def query(sql: str) -> object:
    return wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))


async def loaded(binary: Path, trace: Path) -> TraceProcessor:
    process = await launch(binary)
    await process.feed(fed(trace))
    await process.ask(wire.request(wire.GET_STATUS))
    return process


async def test_engine_answers_and_ends_with_its_input(engine: Path, step_trace: Path) -> None:
    process = await loaded(engine, step_trace)
    result = (await process.ask(query("SELECT count(*) FROM slice"))).query_result
    assert list(result.batch[0].varint_cells) == [487]
    await process.stop(5)
    assert process.stopped_by == "end of input"
    assert not psutil.pid_exists(process.pid)


async def test_engine_leads_its_own_process_session(engine: Path, step_trace: Path) -> None:
    process = await loaded(engine, step_trace)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    await process.stop(5)


async def pieces_of(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_engine_loads_a_trace(engine: Path, step_trace: Path) -> None:
    process = await launch(engine)
    with step_trace.open("rb") as file:
        chunks = list(plain_chunks(file))
    await process.feed(pieces_of(chunks))
    result = (await process.ask(query("SELECT count(*) FROM slice"))).query_result
    assert list(result.batch[0].varint_cells) == [487]
    assert process.progress.loaded_bytes == sum(map(len, chunks))
    await process.stop(5)


@given(st.lists(st.integers(0, 9), max_size=20))
def test_chunks_are_joined_into_pieces(sizes: list[int]) -> None:
    chunks = [bytes([at]) * (size << 19) for at, size in enumerate(sizes)]

    async def all_joined() -> list[bytes]:
        return [piece async for piece in joined(pieces_of(chunks))]

    pieces = asyncio.run(all_joined())
    assert b"".join(pieces) == b"".join(chunks)
    assert all(len(piece) >= 4 << 20 for piece in pieces[:-1])
    assert len(pieces) <= 1 + sum(map(len, chunks)) // (4 << 20)


async def test_document_that_is_no_trace_fails_the_load(engine: Path) -> None:
    process = await launch(engine)
    with pytest.raises(EngineFailed, match="can't load the trace"):
        await process.feed(pieces_of([b"this is no trace"]))
    await process.stop(5)


async def test_interrupt_ends_the_statement_and_not_the_engine(engine: Path, step_trace: Path) -> None:
    process = await loaded(engine, step_trace)
    process.interrupt()  # an interrupt of an idle engine has no effect
    answers = process.exchange(query(ENDLESS_ROWS))
    assert (await anext(answers)).query_result.batch
    process.interrupt()
    assert "interrupted" in [message async for message in answers][-1].query_result.error
    assert not (await process.ask(query("SELECT 1"))).query_result.error
    await process.stop(5)


async def test_engine_can_be_stopped_in_the_middle_of_a_response(engine: Path, step_trace: Path) -> None:
    process = await loaded(engine, step_trace)
    await anext(process.exchange(query(ENDLESS_ROWS)))  # the response is not read further, so its pipe fills up
    await within(5, process.stop(5))
    assert process.stopped_by == "end of input"


@pytest.mark.parametrize(
    ("double", "stopped_by"), [("mute", "end of input"), ("stubborn", "SIGTERM"), ("deaf", "SIGKILL")]
)
async def test_signal_or_end_of_input_that_stopped_the_engine_is_recorded(
    double: str, stopped_by: str, one_event: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    process = await launch(DOUBLES / double)
    if double != "mute":
        await process.ask(wire.request(wire.GET_STATUS))  # the answer shows that it has set its signal handlers
    else:
        process._process.stdin.write(b"")  # type: ignore[union-attr] # stdin is a pipe
    await in_time(process.stop(0.3))
    assert process.stopped_by == stopped_by
    assert f"ended by {stopped_by}" in caplog.text
    assert not psutil.pid_exists(process.pid)


async def test_stopping_a_script_stops_the_engine_that_it_started(one_event: Path) -> None:
    process = await loaded(DOUBLES / "wrapper", one_event)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    await in_time(process.stop(0.2))
    assert not psutil.wait_procs(family, 3)[1]


async def test_crash_in_a_response_is_reported_with_the_last_output(one_event: Path) -> None:
    process = await loaded(DOUBLES / "dying", one_event)
    answers = process.exchange(query("SELECT 1"))
    assert (await anext(answers)).query_result.batch
    with pytest.raises(EngineFailed, match=r"ended with status 1. It said: out of ideas") as failed:
        await anext(answers)
    assert failed.value.extra == {"exit_status": 1}
    with pytest.raises(EngineFailed, match="out of ideas"):
        await process.ask(query("SELECT 1"))
    await process.stop(1)


async def test_killed_engine_is_reported_with_the_signal(engine: Path, step_trace: Path) -> None:
    process = await loaded(engine, step_trace)
    answers = process.exchange(query(ENDLESS_ROWS))
    await anext(answers)
    process.kill()
    with pytest.raises(EngineFailed, match="was killed by SIGKILL"):
        [_ async for _ in answers]
    await process.stop(1)


@pytest.mark.parametrize("double", ["garbled", "gibberish"])
async def test_response_that_is_no_rpc_is_reported(double: str, one_event: Path) -> None:
    process = await loaded(DOUBLES / double, one_event)
    with pytest.raises(EngineFailed, match="answer can't be read"):
        await process.ask(query("SELECT 1"))
    await process.stop(1)


async def test_engine_that_closes_its_output_is_ended(one_event: Path) -> None:
    process = await loaded(DOUBLES / "silenced", one_event)
    with pytest.raises(EngineFailed, match="was killed by SIGKILL"):
        await in_time(process.ask(query("SELECT 1")))
    await process.stop(1)


async def test_flood_of_stderr_neither_blocks_nor_fills_memory(one_event: Path) -> None:
    process = await loaded(DOUBLES / "flooding", one_event)
    for _ in range(3):
        assert list((await process.ask(query("SELECT 1"))).query_result.batch[0].varint_cells) == [1]
    process.kill()
    with pytest.raises(EngineFailed) as failed:
        await process.ask(query("SELECT 1"))
    assert len(failed.value.detail) < 5000
    await process.stop(1)


async def test_program_that_can_not_be_run_is_named(tmp_path: Path, one_event: Path) -> None:
    program = tmp_path / "engine"
    program.write_bytes(b"\x7fELF for another machine")
    program.chmod(0o755)
    process = await launch(program)
    with pytest.raises(EngineFailed, match=r"engine can't be run: Exec format error"):
        await process.ask(wire.request(wire.GET_STATUS))
    await process.stop(1)


async def test_cancelled_start_leaves_no_process(engine: Path, step_trace: Path) -> None:
    before = set(psutil.Process().children())
    starting = asyncio.create_task(launch(engine))
    await asyncio.wait([starting], timeout=0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    async with asyncio.timeout(60):
        while set(psutil.Process().children()) - before:  # noqa: ASYNC110 - the loop reaps the process without an event
            await asyncio.sleep(0)

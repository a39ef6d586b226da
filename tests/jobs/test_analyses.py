"""One process answers all questions: they share what it has read, and a replacement takes over when it ends."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.analyses import Analyses
from service.jobs.children.analysis_child import PER_CLIENT
from service.jobs.children.tasks.questions import AnalysedTrace
from service.jobs.ingest import ingest
from service.store.export import spill_of
from service.trace.errors import BadAnalysisRequest, DeadlineExceeded, ExportFailed, NotApplicable
from tests.processes import living
from tests.traces import TraceShape, write_trace

CHILD = "service.jobs.children analysis"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> AnalysedTrace:
    """A trace as questions name it."""
    folder = tmp_path_factory.mktemp("analyses")
    file = write_trace(folder / "t.json", TraceShape(steps=3))
    with file.open("rb") as content:
        summary = ingest(content, folder / "columns", file.name, lambda _: None)
    return AnalysedTrace(folder / "columns", summary, name=file.name)


def processes() -> list[psutil.Process]:
    """The living analysis children of this process."""
    return living(CHILD)


async def until(count: int) -> list[psutil.Process]:
    """Return the processes once their number is `count`."""
    async with asyncio.timeout(120):
        while len(children := processes()) != count:  # noqa: ASYNC110 - a process sends no event when it starts
            await asyncio.sleep(0.01)
    return children


@asynccontextmanager
async def analyses(folder: Path, **options: Any) -> AsyncIterator[Analyses]:
    questions = Analyses(folder, **{"keep_ready": False, **options})
    try:
        yield questions
    finally:
        await questions.close()
        assert processes() == []


async def answer_json(
    questions: Analyses, trace: AnalysedTrace, name: str = "temporal_breakdown", client: str = "", **parameters: Any
) -> Any:
    return json.loads(b"".join([piece async for piece in questions.answer(name, parameters, [trace], client=client)]))


def run(folder: Path, use: Callable[[Analyses], Any], **options: Any) -> Any:
    async def used() -> Any:
        async with analyses(folder, **options) as questions:
            return await use(questions)

    return asyncio.run(used())


def test_one_process_answers_concurrent_questions(trace: AnalysedTrace, tmp_path: Path) -> None:
    names = ["temporal_breakdown", "operators", "steps", "kernel_breakdown", "critical_path", "launch_stats"] * 3

    async def use(questions: Analyses) -> Any:
        together = await asyncio.gather(*(answer_json(questions, trace, name) for name in names))
        [process] = processes()
        apart = [await answer_json(questions, trace, name) for name in names[:6]]
        assert processes() == [process]
        return together, apart

    together, apart = run(tmp_path, use)
    assert [answer["analysis"] for answer in together] == names
    assert [answer["tables"] for answer in together] == [answer["tables"] for answer in apart * 3]


def test_failed_question_raises_its_own_error(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> Any:
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ("temporal_breakdown", {"memset": "red"}),
            ("temporal_breakdown", {}),
            ("modules", {}),
        )
        waiting = [answer_json(questions, trace, name, **parameters) for name, parameters in cases]
        bad, good, none = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(bad, BadAnalysisRequest)
        assert isinstance(none, NotApplicable)
        return good

    assert run(tmp_path, use)["tables"]["breakdown"]["rows"]


def test_crash_fails_its_question_and_next_question_is_answered(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> Any:
        broken = replace(trace.summary, ranks=None)  # type: ignore[arg-type] # so that the child has a bug
        with pytest.raises(ExportFailed, match="broke"):
            await answer_json(questions, replace(trace, summary=broken))
        return await answer_json(questions, trace)

    assert run(tmp_path, use)["tables"]["breakdown"]["rows"]


def test_killed_process_fails_its_questions_and_is_replaced(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> Any:
        await answer_json(questions, trace)
        [process] = processes()
        process.suspend()
        waiting = [asyncio.ensure_future(answer_json(questions, trace, name)) for name in ("steps", "operators")]
        await asyncio.sleep(0)
        process.kill()
        for answer in waiting:
            with pytest.raises(ExportFailed, match="SIGKILL"):
                await answer
        return await answer_json(questions, trace)

    assert run(tmp_path, use)["tables"]["breakdown"]["rows"]


def test_analysis_process_is_kept_ready_and_used(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> None:
        assert processes() == []
        questions.prepare()
        [ready] = await until(1)
        await answer_json(questions, trace)
        assert processes() == [ready]

    run(tmp_path, use, keep_ready=True)


@pytest.mark.parametrize("keep_ready", [True, False])
def test_idle_analysis_process_ends_and_forgets_what_it_has_read(
    trace: AnalysedTrace, tmp_path: Path, keep_ready: bool
) -> None:
    async def use(questions: Analyses) -> None:
        await answer_json(questions, trace)
        [before] = processes()
        async with asyncio.timeout(120):
            while before in processes():  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
        await until(int(keep_ready))

    run(tmp_path, use, keep_ready=keep_ready, idle_s=0.05)


def test_process_with_only_dropped_questions_is_ended(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> None:
        await answer_json(questions, trace)
        [process] = processes()
        process.suspend()  # a question that takes forever
        leaving = asyncio.ensure_future(answer_json(questions, trace, "steps"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        await until(0)

    run(tmp_path, use, dropped_s=0.05)


@pytest.fixture
def stalled(trace: AnalysedTrace, tmp_path: Path) -> AnalysedTrace:
    """A trace whose questions never end: its columns are a pipe that nobody writes to."""
    columns = tmp_path / "stalled"
    columns.mkdir()
    os.mkfifo(columns / "events.parquet")
    return replace(trace, columns=columns)


def test_question_fails_at_its_deadline_and_others_are_answered(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def use(questions: Analyses) -> Any:
        too_long = [asyncio.ensure_future(answer_json(questions, stalled)) for _ in range(PER_CLIENT)]
        awaited = asyncio.ensure_future(answer_json(questions, trace))
        for question in too_long:
            with pytest.raises(DeadlineExceeded, match="not done after 5 s"):
                await question
        return await awaited

    assert run(tmp_path, use, deadline_s=5)["tables"]["breakdown"]["rows"]


def test_client_is_answered_while_questions_of_another_never_end(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def use(questions: Analyses) -> Any:
        stuck = [asyncio.ensure_future(answer_json(questions, stalled, client="a")) for _ in range(2 * PER_CLIENT)]
        try:
            return await asyncio.wait_for(answer_json(questions, trace, client="b"), 60)
        finally:
            for question in stuck:
                question.cancel()

    assert run(tmp_path, use)["tables"]["breakdown"]["rows"]


def test_dropped_questions_make_way_for_awaited_ones(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def use(questions: Analyses) -> Any:
        abandoned = [asyncio.ensure_future(answer_json(questions, stalled)) for _ in range(PER_CLIENT)]
        awaited = asyncio.ensure_future(answer_json(questions, trace))
        await until(1)
        for question in abandoned:
            question.cancel()
        return await asyncio.wait_for(awaited, 20)

    assert run(tmp_path, use, dropped_s=0.05)["tables"]["breakdown"]["rows"]


def test_analysis_process_ends_with_its_server(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def use(questions: Analyses) -> None:
        await answer_json(questions, trace)
        [process] = processes()
        assert questions._starting
        questions._starting.result()._child.close_input()
        async with asyncio.timeout(120):
            while process in processes():  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)

    run(tmp_path, use)


def test_spill_of_an_analysis_process_is_removed_with_it(trace: AnalysedTrace, tmp_path: Path) -> None:
    spills: list[Path] = []

    async def use(questions: Analyses) -> None:
        await answer_json(questions, trace)
        [process] = processes()
        spills.append(spill_of(tmp_path / "incoming", process.pid))
        spills[0].mkdir(parents=True)

    run(tmp_path / "incoming", use)
    assert not spills[0].exists()

"""Analyses share a process and its cached data; a new process replaces one that ends."""

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
from tests.processes import FORK_SERVER, living
from tests.traces import TraceShape, write_trace

CHILD = "tracedock analysis"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> AnalysedTrace:
    """A trace as the analysis process receives it."""
    folder = tmp_path_factory.mktemp("analyses")
    file = write_trace(folder / "t.json", TraceShape(steps=3))
    with file.open("rb") as content:
        summary = ingest(content, folder / "columns", file.name, lambda _: None)
    return AnalysedTrace(folder / "columns", summary, name=file.name)


def processes() -> list[psutil.Process]:
    """Return the analysis processes that this process has started and that still run."""
    return living(CHILD)


async def wait_for_processes(count: int) -> list[psutil.Process]:
    """Wait until there are `count` analysis processes, and return them."""
    async with asyncio.timeout(120):
        while len(children := processes()) != count:  # noqa: ASYNC110 - a process sends no event when it starts
            await asyncio.sleep(0.01)
    return children


async def wait_until_gone(process: psutil.Process) -> None:
    async with asyncio.timeout(120):
        while process in processes():  # noqa: ASYNC110 - a process sends no event when it ends
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_analyses(folder: Path, **options: Any) -> AsyncIterator[Analyses]:
    """Yield an `Analyses`; after it is closed, no analysis process may run."""
    analyses = Analyses(FORK_SERVER, folder, **options)
    try:
        yield analyses
    finally:
        await analyses.close()
        assert processes() == []


async def answer_json(
    analyses: Analyses, trace: AnalysedTrace, name: str = "temporal_breakdown", client: str = "", **parameters: Any
) -> Any:
    return json.loads(b"".join([piece async for piece in analyses.answer(name, parameters, [trace], client=client)]))


def run_analyses(folder: Path, scenario: Callable[[Analyses], Any], **options: Any) -> Any:
    """Run a scenario on an `Analyses` with these options, and return its result."""

    async def main() -> Any:
        async with open_analyses(folder, **options) as analyses:
            return await scenario(analyses)

    return asyncio.run(main())


def test_one_process_answers_concurrent_questions(trace: AnalysedTrace, tmp_path: Path) -> None:
    names = ["temporal_breakdown", "operators", "steps", "kernel_breakdown", "critical_path", "launch_stats"] * 3

    async def scenario(analyses: Analyses) -> Any:
        concurrent = await asyncio.gather(*(answer_json(analyses, trace, name) for name in names))
        [process] = processes()
        sequential = [await answer_json(analyses, trace, name) for name in names[:6]]
        assert processes() == [process]
        return concurrent, sequential

    concurrent, sequential = run_analyses(tmp_path, scenario)
    assert [answer["analysis"] for answer in concurrent] == names
    assert [answer["tables"] for answer in concurrent] == [answer["tables"] for answer in sequential * 3]


def test_failed_question_does_not_affect_concurrent_questions(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> Any:
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ("temporal_breakdown", {"memset": "red"}),
            ("temporal_breakdown", {}),
            ("modules", {}),
        )
        waiting = [answer_json(analyses, trace, name, **parameters) for name, parameters in cases]
        bad_request, answer, not_applicable = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(bad_request, BadAnalysisRequest)
        assert isinstance(not_applicable, NotApplicable)
        return answer

    assert run_analyses(tmp_path, scenario)["tables"]["breakdown"]["rows"]


def test_crash_fails_its_question_and_next_question_is_answered(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> Any:
        broken = replace(trace.summary, ranks=None)  # type: ignore[arg-type] # makes the child raise an unexpected error
        with pytest.raises(ExportFailed, match="broke"):
            await answer_json(analyses, replace(trace, summary=broken))
        return await answer_json(analyses, trace)

    assert run_analyses(tmp_path, scenario)["tables"]["breakdown"]["rows"]


def test_killed_process_fails_its_questions_and_is_replaced(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> Any:
        await answer_json(analyses, trace)
        [process] = processes()
        process.suspend()
        tasks = [asyncio.ensure_future(answer_json(analyses, trace, name)) for name in ("steps", "operators")]
        await asyncio.sleep(0)
        process.kill()
        for task in tasks:
            with pytest.raises(ExportFailed, match="SIGKILL"):
                await task
        return await answer_json(analyses, trace)

    assert run_analyses(tmp_path, scenario)["tables"]["breakdown"]["rows"]


def test_idle_analysis_process_ends(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> None:
        await answer_json(analyses, trace)
        [process] = processes()
        await wait_until_gone(process)
        assert processes() == []

    run_analyses(tmp_path, scenario, idle_s=0.05)


def test_process_with_only_dropped_questions_is_ended(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> None:
        await answer_json(analyses, trace)
        [process] = processes()
        process.suspend()  # so that its next question never ends
        dropped = asyncio.ensure_future(answer_json(analyses, trace, "steps"))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait([dropped])
        await wait_for_processes(0)

    run_analyses(tmp_path, scenario, dropped_s=0.05)


@pytest.fixture
def stalled(trace: AnalysedTrace, tmp_path: Path) -> AnalysedTrace:
    """A trace whose questions never end: its columns are a pipe without a writer."""
    columns = tmp_path / "stalled"
    columns.mkdir()
    os.mkfifo(columns / "events.parquet")
    return replace(trace, columns=columns)


def test_question_fails_at_its_deadline_and_others_are_answered(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def scenario(analyses: Analyses) -> Any:
        stalled_answers = [asyncio.ensure_future(answer_json(analyses, stalled)) for _ in range(PER_CLIENT)]
        awaited = asyncio.ensure_future(answer_json(analyses, trace))
        for answer in stalled_answers:
            with pytest.raises(DeadlineExceeded, match="not done after 5 s"):
                await answer
        return await awaited

    assert run_analyses(tmp_path, scenario, deadline_s=5)["tables"]["breakdown"]["rows"]


def test_client_is_answered_while_questions_of_another_client_never_end(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def scenario(analyses: Analyses) -> Any:
        stalled_answers = [
            asyncio.ensure_future(answer_json(analyses, stalled, client="a")) for _ in range(2 * PER_CLIENT)
        ]
        try:
            return await asyncio.wait_for(answer_json(analyses, trace, client="b"), 60)
        finally:
            for answer in stalled_answers:
                answer.cancel()

    assert run_analyses(tmp_path, scenario)["tables"]["breakdown"]["rows"]


def test_awaited_question_is_answered_after_stalled_questions_are_dropped(
    trace: AnalysedTrace, stalled: AnalysedTrace, tmp_path: Path
) -> None:
    async def scenario(analyses: Analyses) -> Any:
        dropped = [asyncio.ensure_future(answer_json(analyses, stalled)) for _ in range(PER_CLIENT)]
        awaited = asyncio.ensure_future(answer_json(analyses, trace))
        await wait_for_processes(1)
        for question in dropped:
            question.cancel()
        return await asyncio.wait_for(awaited, 20)

    assert run_analyses(tmp_path, scenario, dropped_s=0.05)["tables"]["breakdown"]["rows"]


def test_analysis_process_ends_with_its_server(trace: AnalysedTrace, tmp_path: Path) -> None:
    async def scenario(analyses: Analyses) -> None:
        await answer_json(analyses, trace)
        [process] = processes()
        starting = analyses._child._starting
        assert starting
        starting.result()._child.close_input()  # as when the server ends
        await wait_until_gone(process)

    run_analyses(tmp_path, scenario)


def test_spill_of_an_analysis_process_is_removed_with_it(trace: AnalysedTrace, tmp_path: Path) -> None:
    spills: list[Path] = []

    async def scenario(analyses: Analyses) -> None:
        await answer_json(analyses, trace)
        [process] = processes()
        spills.append(spill_of(tmp_path / "incoming", process.pid))
        spills[0].mkdir(parents=True)

    run_analyses(tmp_path / "incoming", scenario)
    assert not spills[0].exists()

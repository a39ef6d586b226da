"""A task is a picklable call on paths, which any process can run without the server."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.analysis.reading_cache import ReadingCache
from service.cutting.source import Source
from service.formats.execution_trace import ExecutionTraceFile
from service.jobs.children.encoding import decode, encode
from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import TaskProcess
from service.jobs.children.tasks import TASK_NAMES
from service.jobs.children.tasks.base import Task
from service.jobs.children.tasks.datasets import DatasetTask, FleetQuestionTask
from service.jobs.children.tasks.derive import MergeTask, OverlayTask, PlanTask, SplitTask
from service.jobs.children.tasks.documents import Cut, ExportTask, OriginalTask, PerfettoTask, RenderTask
from service.jobs.children.tasks.ingest import IngestTask
from service.jobs.children.tasks.questions import (
    AnalysedTrace,
    AnswerTask,
    ApplicableTask,
    MatchTask,
    OpeningTask,
    PrepareTask,
    SliceTask,
)
from service.rendering.document import render
from service.rendering.pftrace.document import pftrace
from service.rendering.render_report import RenderReport
from service.rendering.view import EngineSlice
from service.store.export import document
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary
from tests.analysis.training import Training
from tests.cutting.test_cut import ingested
from tests.processes import FORK_SERVER

RUN = """
import pickle, sys
from pathlib import Path
task, arguments = pickle.loads(sys.stdin.buffer.read())
result = task.run(*arguments)
if hasattr(result, "send"):
    result = b"".join(result)
sys.stdout.buffer.write(pickle.dumps(result))
assert not any(name.startswith(("service.http", "service.app", "fastapi")) for name in sys.modules)
"""

WINDOW = Selection.model_validate({"window": {"from": "ProfilerStep#1"}, "exclude": {"names": ["aten::*"]}})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    text = orjson.dumps({"schemaVersion": 1, "traceEvents": Training(steps=2, layers=3).events})
    return ingested(text, tmp_path_factory.mktemp("tasks") / "trace")


def run_elsewhere(task: Any, *arguments: Any) -> Any:
    """Run a task in a process that has only the task, and return the result."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=pickle.dumps((task, arguments)), capture_output=True, check=True
    )
    return pickle.loads(done.stdout)


def tasks_of(source: Source, folder: Path) -> list[Any]:
    """Return a task of each kind."""
    traces = [AnalysedTrace(source.columns, source.summary, WINDOW, "a.json"), AnalysedTrace(source.columns, Summary())]
    return [
        IngestTask(folder / "received", str(folder / "t.json"), folder / "columns", "t.json", "a mark"),
        SplitTask(source, folder, WINDOW, "parts", 3),
        PlanTask(source, Selection()),
        MergeTask([source, source], folder, "merged.json", "none"),
        OverlayTask(source, folder, WINDOW),
        ExportTask(source.columns, pack=True, order="original", redact=True, cut=Cut(WINDOW, source.summary, "it")),
        PerfettoTask(source.columns, source.summary, pack=True, redact=True, cut=Cut(WINDOW, source.summary, "it")),
        RenderTask(source.columns, source.summary, WINDOW, "essential"),
        OriginalTask("s3://traces/a.pftrace.gz", "a mark"),
        AnswerTask("operators", {"top": 3}, traces, "csv", ["operators"]),
        ApplicableTask(traces[0]),
        MatchTask(replace(traces[0], execution_traces=(ExecutionTraceFile(folder / "et.json", "et.json"),))),
        OpeningTask(source.columns, source.summary, None, SliceReference("at", 3, "a:b")),
        SliceTask(source.columns, source.summary, None, SliceReference("position", 3)),
        SliceTask(source.columns, source.summary, engine_slice=EngineSlice(2, 5, "aten::mm", "1", "main", 1), alike=3),
        PrepareTask(source.columns, source.summary, folder),
        DatasetTask("s3://facts/run-7", 50, "a key"),
        FleetQuestionTask("/facts", "step_matrix", "run-7", {"value": "own"}, "csv", ["matrix"], 3, 1),
    ]


def test_each_task_survives_pickle_and_the_protocol(source: Source, tmp_path: Path) -> None:
    tasks = tasks_of(source, tmp_path)
    assert {type(task).__name__ for task in tasks} == set(TASK_NAMES)
    for task in tasks:
        assert pickle.loads(pickle.dumps(task)) == task
        assert decode(type(task), encode(task)) == task


def test_ingest_task_runs_in_another_process(tmp_path: Path) -> None:
    original = tmp_path / "t.json"
    original.write_bytes(b'{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]}')
    task = IngestTask(tmp_path / "received", str(original), tmp_path / "columns", "t.json")
    assert run_elsewhere(task).counts == {"X|cpu_op": 1}
    assert (tmp_path / "columns" / "events.parquet").exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda source, folder: SplitTask(source, folder, Selection(), "step"),
        lambda source, folder: MergeTask(
            [Source(source.columns, "a", source.summary, str(rank), rank) for rank in range(2)], folder, "m", "none"
        ),
        lambda source, folder: OverlayTask(source, folder, Selection()),
    ],
    ids=["split", "merge", "overlay"],
)
def test_deriving_task_runs_in_another_process(
    source: Source, tmp_path: Path, make: Callable[[Source, Path], Task[Any]]
) -> None:
    derived = run_elsewhere(make(source, tmp_path)).traces
    assert derived
    for trace in derived:
        assert (tmp_path / trace.id / "events.parquet").exists()
        assert trace.summary.kept_events > 0


def test_plan_names_the_pieces_that_split_makes(source: Source, tmp_path: Path) -> None:
    plan = run_elsewhere(PlanTask(source, Selection(), "step"))
    derived = SplitTask(source, tmp_path, Selection(), "step").run().traces
    assert [(piece.name, piece.events, piece.counts) for piece in plan.pieces] == [
        (trace.name, trace.summary.events["kept"], trace.summary.counts) for trace in derived
    ]


def test_document_tasks_run_in_another_process(source: Source) -> None:
    assert run_elsewhere(ExportTask(source.columns)) == b"".join(document(source.columns))
    packets = b"".join(pftrace(source.columns, source.summary))
    assert run_elsewhere(PerfettoTask(source.columns, source.summary)) == packets
    rendered = b"".join(render(source.columns, source.summary, RenderReport()))
    assert run_elsewhere(RenderTask(source.columns, source.summary)) == rendered


def test_question_tasks_need_only_readings(source: Source, tmp_path: Path) -> None:
    readings = ReadingCache(tmp_path / "spill")
    trace = AnalysedTrace(source.columns, source.summary)
    step = source.summary.steps[0]["number"]
    opening = OpeningTask(source.columns, source.summary, Selection(steps=[step]))
    assert orjson.loads(opening.run(readings))["start"] is not None
    assert any(question["applies"] for question in orjson.loads(ApplicableTask(trace).run(readings))["analyses"])
    assert orjson.loads(AnswerTask("operators", {}, [trace]).run(readings))["tables"]


def test_child_returns_the_result_that_the_task_has_here(source: Source) -> None:
    task = PlanTask(source, Selection(), "parts", 2)

    async def in_child() -> Any:
        return (await TaskProcess(FORK_SERVER, Kind.DERIVE, task).ended).result

    assert asyncio.run(in_child()) == task.run()

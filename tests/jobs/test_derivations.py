"""Stored requests of jobs stay readable, so that a server continues the jobs that an earlier version has queued."""

from pathlib import Path
from typing import Any

import pytest

from service.cutting.source import Source
from service.jobs.children.tasks.derive import MergeTask, OverlayTask, SplitTask
from service.jobs.derivations import Merge, Overlay, Split, derivation_of, sources_of
from service.jobs.import_job import ImportRequest
from service.store.imports import ImportSpec
from service.store.jobs import Job
from service.trace.errors import BadSelection
from service.trace.selection import Selection
from service.trace.summary import Summary

STEPS = Selection(steps=[1, 2])
ROWS: list[tuple[str, dict[str, Any], Split | Merge | Overlay]] = [
    (
        "split",
        {"trace": "a", "selection": {"steps": [1, 2]}, "by": "parts", "value": 3},
        Split("a", STEPS, "parts", 3),
    ),
    ("split", {"trace": "a", "selection": {}, "by": None, "value": None}, Split("a", Selection())),
    (
        "merge",
        {"traces": ["a", "b"], "ranks": [1, 0], "align": "collectives", "name": "m.json"},
        Merge(["a", "b"], [1, 0], "collectives", "m.json"),
    ),
    (
        "merge",
        {"traces": ["a", "b"], "ranks": None, "align": "none", "name": "m.json"},
        Merge(["a", "b"], None, "none", "m.json"),
    ),
    (
        "overlay",
        {"trace": "a", "analysis": "critical_path", "selection": {"steps": [1, 2]}},
        Overlay("a", "critical_path", STEPS),
    ),
]


def job(kind: str, request: dict[str, Any]) -> Job:
    return Job(1, kind, request.get("trace", ""), 0, request=request)


def source_of(trace_id: str) -> Source:
    return Source(Path("columns", trace_id), f"{trace_id}.json", Summary(), trace_id)


@pytest.mark.parametrize(("kind", "request_", "derivation"), ROWS)
def test_stored_request_is_read_and_written_as_it_is(
    kind: str, request_: dict[str, Any], derivation: Split | Merge | Overlay
) -> None:
    assert derivation_of(job(kind, request_)) == derivation
    assert derivation.as_dict() == request_
    assert kind == derivation.KIND


def test_derivation_reads_its_sources() -> None:
    assert [sources_of(job(kind, request)) for kind, request, _ in ROWS] == [
        ["a"],
        ["a"],
        ["a", "b"],
        ["a", "b"],
        ["a"],
    ]


def test_task_of_a_derivation_has_the_sources_and_the_folder() -> None:
    folder = Path("making", "1")
    tasks = [derivation.task(folder, source_of) for _, _, derivation in ROWS]
    a, b = source_of("a"), source_of("b")
    assert tasks[0] == SplitTask(a, folder, STEPS, "parts", 3)
    assert tasks[2] == MergeTask(
        [Source(a.columns, a.name, a.summary, "a", 1), Source(b.columns, b.name, b.summary, "b", 0)],
        folder,
        "m.json",
        "collectives",
    )
    assert tasks[3] == MergeTask([a, b], folder, "m.json", "none")
    assert tasks[4] == OverlayTask(a, folder, STEPS)


def test_stored_selection_that_means_nothing_is_refused() -> None:
    with pytest.raises(BadSelection):
        derivation_of(job("split", {"trace": "a", "selection": {"colours": ["red"]}, "by": None, "value": None}))


@pytest.mark.parametrize("files", [None, ["a.json", "b.json"]])
def test_stored_request_of_an_import_is_read_and_written_as_it_is(files: list[str] | None) -> None:
    spec = {"path": "/data/*.json", "mode": "auto", "group": "run", "name": None, "watch": True}
    request_ = spec | {"import": "1", "files": files}
    request = ImportRequest.of(job("import", request_))
    assert request == ImportRequest("1", files)
    assert request.as_dict(ImportSpec("/data/*.json", "auto", "run", watch=True)) == request_

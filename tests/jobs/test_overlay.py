"""An overlay has the track and arrows of the critical path, and all events of the trace."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from service.cutting.children import Child
from service.cutting.merge import merge
from service.cutting.source import Source
from service.jobs.overlay import write_critical_path
from service.store.catalog import new_trace_id
from service.store.export import document
from service.trace.errors import NotApplicable, SelectionError
from service.trace.selection import Selection
from tests.analysis.conftest import ask, read_once, real
from tests.analysis.training import Training
from tests.conftest import needs_shared
from tests.cutting.test_cut import ingested
from tests.rendering.loads import load

__all__ = ["ask", "read_once"]

Event = dict[str, Any]
NAMED = {"host", "launch", "compute", "communication", "memory"}
ARROW_OF = {
    "host_bound": ("aten::linear", "autograd::engine::evaluate_function: AddmmBackward0"),
    "device_bound": ("cudaLaunchKernel", "gemm"),
}
SHAPES: dict[str, dict[str, Any]] = {"host_bound": {"kernel_us": 6, "host_us": 20}, "device_bound": {"kernel_us": 60}}

PATH = """
SELECT slice.name, slice.dur, extract_arg(slice.arg_set_id, 'args.kind'), extract_arg(slice.arg_set_id, 'args.number')
FROM slice WHERE category = 'critical_path' ORDER BY slice.ts
"""
TRACKS = """
SELECT DISTINCT process.name, thread.name FROM slice JOIN thread_track ON thread_track.id = track_id
JOIN thread USING (utid) JOIN process USING (upid) WHERE slice.category = 'critical_path'
"""
ARROWS = """
SELECT a.category, a.name, a.ts, b.category, b.name, b.ts, ta.utid = tb.utid FROM flow
JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = slice_in
JOIN thread_track ta ON ta.id = a.track_id JOIN thread_track tb ON tb.id = b.track_id
"""


def _source(events: list[Event], folder: Path) -> Source:
    return ingested(json.dumps({"schemaVersion": 1, "traceEvents": events}), folder)


def _overlay_of(source: Source, folder: Path, selection: Selection | None = None) -> Child:
    return write_critical_path(
        source, folder / new_trace_id(), selection or Selection(), spill=folder / "spill", on_written=lambda *_: None
    )


class Arrow(NamedTuple):
    """An arrow in the engine."""

    out_category: str
    out: str
    out_ns: int
    into_category: str
    into: str
    into_ns: int
    same_track: int

    @property
    def along(self) -> bool:
        """True if both ends of the arrow are on the path's track."""
        return self.out_category == self.into_category == "critical_path"


def _shown(child: Child, folder: Path) -> tuple[list[Any], list[Any], list[Arrow]]:
    """Return the slices of the path, their tracks, and all arrows, as loaded in the engine."""
    source = Source(folder / child.id, child.name, child.summary, child.id)
    path, tracks, arrows = load(source, PATH, TRACKS, ARROWS).answers
    return path, tracks, [Arrow(*cast(Any, row)) for row in arrows]


@pytest.mark.parametrize("shape", SHAPES)
def test_engine_shows_critical_path_and_all_its_arrows(shape: str, ask: Any, tmp_path: Path) -> None:
    events = Training(steps=1, layers=20, **SHAPES[shape]).events
    answer = ask("critical_path", events)
    path, tracks, arrows = _shown(_overlay_of(_source(events, tmp_path / "trace"), tmp_path), tmp_path)
    lasting = [row for row in answer["path"] if row["end_ns"] > row["start_ns"]]
    assert [(dur, kind, number) for _, dur, kind, number in path] == [
        (row["end_ns"] - row["start_ns"], row["kind"], row["number"]) for row in lasting
    ]
    assert [name for name, *_ in path] == [row["name"] if row["kind"] in NAMED else row["kind"] for row in lasting]
    assert tracks == [("Critical path", "path")]
    along = [arrow for arrow in arrows if arrow.along]
    assert len(along) == len(lasting) - 1
    assert all(edge.same_track and edge.out_ns < edge.into_ns for edge in along)
    crossing = [row for row in lasting if row["kind"] in {"handover", "launch", "event", "return"}]
    forward_to_backward = sum(event["ph"] == "s" for event in events)
    assert len(arrows) == len(along) + len(crossing) + forward_to_backward
    (out, into) = ARROW_OF[shape]
    assert Counter((arrow.out, arrow.into, arrow.same_track) for arrow in arrows)[out, into, 0]


def test_overlay_leaves_all_events_unchanged(tmp_path: Path) -> None:
    events = Training(steps=2, layers=10).events
    child = _overlay_of(_source(events, tmp_path / "trace"), tmp_path)
    written = json.loads(b"".join(document(tmp_path / child.id)))
    originals = [event for event in written["traceEvents"] if event.get("pid") != "Critical path"]
    originals = [event for event in originals if event.get("cat") != "critical_path"]

    def key(event: Event) -> str:
        return json.dumps(event, sort_keys=True)

    assert sorted(map(key, originals)) == sorted(map(key, events))
    assert written["tracedock"]["overlay"]["kind"] == "critical_path"
    assert (child.name, child.selection) == ("trace.critical-path.pt.trace.json.gz", Selection())
    again = ingested(json.dumps(written), tmp_path / "again")
    assert again.summary.counts == child.summary.counts


def test_overlay_of_a_selection_has_the_path_of_the_selection(ask: Any, tmp_path: Path) -> None:
    events = Training(steps=3, layers=10).events
    selection = Selection(steps=(1,))
    child = _overlay_of(_source(events, tmp_path / "trace"), tmp_path, selection)
    path = ask("critical_path", events, selection=selection)["path"]
    shown = [
        event
        for event in json.loads(b"".join(document(tmp_path / child.id)))["traceEvents"]
        if event["ph"] == "X" and event["cat"] == "critical_path"
    ]
    assert [event["args"]["number"] for event in shown] == [
        row["number"] for row in path if row["end_ns"] > row["start_ns"]
    ]
    assert [step["number"] for step in child.summary.steps] == [1]
    assert child.selection == selection


def test_each_rank_of_a_merged_trace_has_a_track(tmp_path: Path) -> None:
    sources = []
    for rank in range(2):
        document_ = {
            "distributedInfo": {"rank": rank, "world_size": 2},
            "traceEvents": Training(steps=1, layers=5).events,
        }
        sources.append(ingested(json.dumps(document_), tmp_path / f"rank{rank}", f"rank{rank}.json"))
    merged = merge(sources, tmp_path / "merged", name="merged.json", align="none", on_written=lambda *_: None)
    child = _overlay_of(Source(tmp_path / merged.id, merged.name, merged.summary, merged.id), tmp_path)
    _, tracks, arrows = _shown(child, tmp_path)
    assert sorted(tracks) == [("Critical path", "rank 0"), ("Critical path", "rank 1")]
    assert sum(arrow.along for arrow in arrows) == child.summary.counts["X|critical_path"] - 2


def test_overlay_without_a_path_or_without_events_is_refused(tmp_path: Path) -> None:
    source = _source([{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}], tmp_path / "a")
    with pytest.raises(NotApplicable, match="GPU"):
        _overlay_of(source, tmp_path)
    source = _source(Training(steps=1).events, tmp_path / "b")
    with pytest.raises(SelectionError, match="no step"):
        _overlay_of(source, tmp_path, Selection(steps=(7,)))


@needs_shared
def test_overlay_of_a_real_step_opens_in_the_engine_with_all_arrows(tmp_path: Path) -> None:
    trace = real("a100_nccl_3_steps")
    source = ingested(trace.read_bytes(), tmp_path / "trace", trace.name)
    child = _overlay_of(source, tmp_path, Selection(steps=(5,)))
    path, _, arrows = _shown(child, tmp_path)
    assert len(path) == child.summary.counts["X|critical_path"] > 10_000
    assert sum(arrow.along for arrow in arrows) == len(path) - 1
    launch = "cudaLaunchKernel"  # the main thread's last call before the backward pass
    into_backward, back = "autograd::engine::evaluate_function: DivBackward1", "aten::_foreach_mul_"
    assert any((arrow.out, arrow.into) == (launch, into_backward) for arrow in arrows)
    assert any(arrow.into == back and not arrow.same_track for arrow in arrows)

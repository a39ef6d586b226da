"""Pieces become traces of their own, with the events and the summary of the oracle."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from service.cutting.children import write_children
from service.cutting.pieces import split_into_pieces
from service.cutting.source import Source
from service.store.folder import EVENTS
from service.trace.errors import NothingSelected
from service.trace.piece import By
from service.trace.selection import Selection
from tests import brute
from tests.conftest import SHARED
from tests.cutting.choices import Chosen, text_of
from tests.cutting.test_clip import check as check_clipped
from tests.cutting.test_cut import HERE, SMALL, by_time, document_of, ingested, lines, plain, synthetic

new_ids = (f"{number:012x}" for number in count(1))


def split(
    source: Source, folder: Path, selection: Chosen, by: By | None = None, value: int | None = None
) -> list[tuple[Chosen, Source]]:
    """Split a trace, and return the selection and the trace of each piece."""
    planned = split_into_pieces(source.columns, source.summary, Selection.parsed(selection), by, value)
    progress: list[tuple[int, int]] = []

    children = write_children(
        source, folder, planned, new_id=new_ids.__next__, on_written=lambda *counts: progress.append(counts)
    )

    assert [written for written, _ in progress] == sorted(written for written, _ in progress)
    assert progress[-1][0] == progress[-1][1] == sum(child.summary.events["kept"] for child in children)
    return [
        (
            child.selection.as_dict() if child.selection else {},
            Source(folder / child.id, child.name, child.summary, child.id),
        )
        for child in children
    ]


def check(text: str | bytes, children: list[tuple[Chosen, Source]], folder: Path) -> None:
    """Check that each child has the events of its selection, and the summary of its own document."""
    document, events = brute.Document(text), lines(text)
    for number, (selection, child) in enumerate(children):
        child_text = document_of(child)
        positions = brute.kept(document, selection)
        if selection.get("straddle") != "clip":
            assert lines(child_text) == [events[at] for at in by_time(document, positions)], selection
        reingested = ingested(child_text, folder / f"again{number}", child.name)
        comparable = replace(reingested.summary, format=child.summary.format, health=child.summary.health)
        assert comparable == child.summary, selection
        assert reingested.envelope == child.envelope
        table, reingested_table = (pq.read_table(trace.columns / EVENTS) for trace in (child, reingested))
        assert table.schema.metadata[b"tracedock.columns"] == b"1"
        assert table.schema.equals(reingested_table.schema)
        # ingest numbers the positions anew; in texts, line breaks become spaces
        differing = ["position", "args", "rest"]
        assert table.drop(differing).to_pylist() == reingested_table.drop(differing).to_pylist()


CASES: list[tuple[By | None, int | None, Chosen]] = [
    (None, None, {"phases": ["X"]}),
    ("step", None, {}),
    ("step", None, {"straddle": "start", "categories": ["kernel", "cpu_op"]}),
    ("stream", None, {}),
    ("stream", None, {"closure": {"launches": False, "flows": False}}),
    ("device", None, {}),
    ("parts", 4, {}),
    ("parts", 3, {"straddle": "start", "closure": {"metadata": False}}),
    ("parts", 5, {"straddle": "clip"}),
    ("duration", 300_000, {"straddle": "start"}),
    ("size", 60_000, {}),
    ("size", 40_000, {"straddle": "clip"}),
]


@pytest.mark.parametrize(("by", "value", "selection"), CASES)
def test_pieces_of_a_synthetic_trace_match_the_oracle(
    by: By | None, value: int | None, selection: Chosen, tmp_path: Path
) -> None:
    text = synthetic(kernels=8, devices=(0, 1), steps=3)
    source = ingested(text, tmp_path / "whole", "rank0.pt.trace.json.gz")

    children = split(source, tmp_path / "made", selection, by, value)

    assert len(children) > 1 or by is None
    assert all(child.whole_id == source.source for _, child in children)
    check(text, children, tmp_path)


@pytest.mark.parametrize("path", SMALL[-2:], ids=lambda path: path.name.partition(".")[0])
def test_pieces_of_a_real_trace_match_the_oracle(path: Path, tmp_path: Path) -> None:
    text = plain(path)
    source = ingested(text, tmp_path / "whole", path.name)
    by: By
    value: int | None = None
    if source.summary.steps:
        by = "step"
    elif source.summary.streams:
        by = "stream"
    else:
        by = "parts"
        value = 3

    check(text, split(source, tmp_path / "made", {}, by, value), tmp_path)


@pytest.mark.parametrize(("row_group", "pieces", "row_groups_min"), [(2, 7, 2), (100, 66, 1)])
def test_pieces_do_not_depend_on_the_row_groups_of_the_columns(
    row_group: int, pieces: int, row_groups_min: int, tmp_path: Path
) -> None:
    text = synthetic(kernels=5, steps=2)
    with (
        mock.patch("service.store.columns.ROW_GROUP", row_group),
        mock.patch("service.cutting.children.ROW_GROUP", row_group),
    ):
        source = ingested(text, tmp_path / "whole", "rank0.pt.trace.json.gz")
        children = split(source, tmp_path / "made", {}, "parts", pieces)

        assert pq.ParquetFile(children[0][1].columns / EVENTS).metadata.num_row_groups >= row_groups_min
        check(text, children[::33], tmp_path)


def test_piece_has_the_name_of_the_trace_and_a_suffix(tmp_path: Path) -> None:
    source = ingested(synthetic(kernels=4, devices=(0, 1)), tmp_path / "whole", "run.rank3.pt.trace.json.gz")

    def names(by: By | None, value: int | None = None) -> list[str]:
        return [child.name for _, child in split(source, tmp_path / "made", {}, by, value)]

    assert names(None) == ["run.rank3.cut.pt.trace.json.gz"]
    assert names("parts", 2) == [f"run.rank3.part{number}of2.pt.trace.json.gz" for number in (1, 2)]
    assert names("parts", 10)[0] == "run.rank3.part01of10.pt.trace.json.gz"
    for by in ("step", "stream", "device"):
        child_names = names(by)
        assert len({*child_names}) == len(child_names)
        assert all(name.startswith("run.rank3.") and name.endswith(".pt.trace.json.gz") for name in child_names)


def test_empty_pieces_are_skipped_and_a_split_into_only_empty_pieces_is_an_error(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [{"ph": "X", **HERE, "name": "a", "ts": ts, "dur": 1} for ts in (0, 1, 98, 99)]
    source = ingested(text_of(*events), tmp_path / "whole")

    children = split(source, tmp_path / "made", {}, "parts", 10)

    assert [child.name.split(".")[1] for _, child in children] == ["part01of10", "part10of10"]
    with pytest.raises(NothingSelected):
        split(source, tmp_path / "none", {"names": ["b"], "closure": {"metadata": False}}, "parts", 10)
    assert not (tmp_path / "none").exists() or not list((tmp_path / "none").iterdir())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are missing")
def test_pieces_of_a_real_trace_stay_below_the_size_limit(tmp_path: Path) -> None:
    path = SHARED / "h100_bert_small.pt.trace.json.gz"
    text = plain(path)
    source = ingested(text, tmp_path / "whole", path.name)
    limit = len(document_of(source)) // 5

    for straddle in ("keep", "start", "clip"):
        children = split(source, tmp_path / straddle, {"straddle": straddle}, "size", limit)

        assert len(children) >= 5
        assert max(len(document_of(child)) for _, child in children) <= limit
        if straddle == "clip":
            check_clipped(text, source, children[1][0])

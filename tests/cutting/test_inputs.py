"""Inputs of one rank are merged on the clock of its trace, with titles of their own, and belong to no rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.cutting.inputs import kind_of
from service.cutting.source import Source
from service.trace.errors import CannotMerge
from service.trace.piece import Align
from service.trace.summary import Summary
from tests.cutting.test_alignment import reduced
from tests.cutting.test_cut import ingested
from tests.cutting.test_merge import check_anew, merged, refused, rows_of
from tests.snapshots import BASE, SMALL, START_US, entry, pickled, snapshot

ZERO_NS = (START_US + 1) * 1000
"""Zero of the clock of `SMALL`."""


def trace(folder: Path, rank: int, *, base_ns: int | None = ZERO_NS - 5_000, later_us: int = 0) -> Source:
    """Return the trace of a rank with two collectives, on process and device 0 as the snapshot."""
    events = [reduced(10 + later_us, 1), reduced(20 + later_us, 2)]
    document = {
        "traceEvents": [{**event, "args": event["args"] | {"device": 0, "stream": 7}} for event in events],
        "distributedInfo": {"rank": rank},
        **({} if base_ns is None else {"baseTimeNanoseconds": base_ns}),
    }
    return ingested(json.dumps(document), folder / f"trace{rank}", f"rank{rank}.json")


def memory(folder: Path, rank: int, content: dict[str, Any] = SMALL) -> Source:
    """Return a memory snapshot of a rank."""
    return ingested(pickled(content), folder / f"memory{rank}", f"memory_rank{rank}.pickle")


def names_of(result: Source) -> set[str | None]:
    return {process["name"] for process in result.summary.processes if process["events"]}


@pytest.mark.parametrize("order", [1, -1])
def test_snapshot_is_beside_the_trace_of_its_rank(order: int, tmp_path: Path) -> None:
    sources = [trace(tmp_path, 3), memory(tmp_path, 3)]

    result = merged(sources[::order], tmp_path, align="base")

    (rank,) = result.summary.ranks
    (beside,) = rank["beside"]
    assert (rank["rank"], rank["name"], rank["shift_ns"]) == (3, "rank3.json", 0)
    assert (beside["kind"], beside["name"], beside["shift_ns"]) == ("memory_snapshot", "memory_rank3.pickle", 5_000)
    assert names_of(result) == {
        "rank 3 · GPU 0",
        *(f"rank 3 · memory snapshot · GPU 0 {what}" for what in ("memory", "largest blocks", "annotations")),
    }
    pids = [{new for new, _ in input_["pids"]} for input_ in (rank, beside)]
    assert pids[0].isdisjoint(pids[1])
    assert {(row["pid"] in pids[0], row["rank"]) for row in rows_of(result)} == {(True, 3), (False, None)}
    starts = [row["ts_ns"] for row in rows_of(result) if row["name"] == "[memory]"]
    assert starts == [6_000, 8_000, 11_000]
    envelopes = json.loads(result.envelope)["envelopes"]
    assert envelopes["3 memory_snapshot"] == json.loads(sources[1].envelope)
    check_anew(result, tmp_path)


def test_collectives_shift_a_snapshot_with_its_rank(tmp_path: Path) -> None:
    sources = [trace(tmp_path, 0), trace(tmp_path, 1, later_us=7), memory(tmp_path, 1)]

    result = merged(sources, tmp_path, align="collectives")

    first, second = result.summary.ranks
    assert (first["shift_ns"], second["shift_ns"], second["beside"][0]["shift_ns"]) == (0, -7_000, 5_000 - 7_000)


def test_snapshots_of_several_ranks_are_the_ranks(tmp_path: Path) -> None:
    result = merged([memory(tmp_path, 0), memory(tmp_path, 1)], tmp_path, align="base")

    assert [(rank["rank"], "beside" in rank) for rank in result.summary.ranks] == [(0, False), (1, False)]
    assert "rank 1 · GPU 0 memory" in names_of(result)


@pytest.mark.parametrize(
    ("format_", "kind", "title"),
    [("sqlite.gz", "nsight_systems", "Nsight Systems"), ("pftrace", "perfetto", "Perfetto")],
)
def test_trace_of_another_profiler_is_beside_that_of_kineto(
    format_: str, kind: str, title: str, tmp_path: Path
) -> None:
    kineto, other = trace(tmp_path / "kineto", 0), trace(tmp_path / "other", 0)
    other = replace(other, summary=replace(other.summary, format=format_))

    result = merged([other, kineto], tmp_path, align="base")

    assert names_of(result) == {"rank 0 · GPU 0", f"rank 0 · {title} · GPU 0"}
    assert [input_["kind"] for input_ in result.summary.ranks[0]["beside"]] == [kind]


def test_memory_timeline_is_no_snapshot() -> None:
    summary = Summary(counts={"i|memory_timeline": 1})

    assert kind_of(summary) == "memory_timeline"


UNTIMED = snapshot([entry("alloc", BASE, 512)])


@pytest.mark.parametrize("align", ["base", "collectives"])
def test_inputs_without_a_common_clock_are_refused(align: Align, tmp_path: Path) -> None:
    timed, untimed = trace(tmp_path, 0), memory(tmp_path, 0, UNTIMED)
    with pytest.raises(CannotMerge) as caught:
        merged([timed, untimed], tmp_path, align=align)
    assert "memory_rank0.pickle does not say at which time it begins" in str(caught.value)

    without_base = trace(tmp_path / "other", 0, base_ns=None)
    with pytest.raises(CannotMerge, match=r"rank0\.json does not say"):
        merged([without_base, memory(tmp_path / "other", 0)], tmp_path, align=align)


def test_inputs_keep_their_times_if_asked_to(tmp_path: Path) -> None:
    result = merged([trace(tmp_path, 0), memory(tmp_path, 0, UNTIMED)], tmp_path, align="none")

    assert result.summary.ranks[0]["beside"][0]["shift_ns"] == 0


def test_two_snapshots_of_a_rank_are_refused(tmp_path: Path) -> None:
    sources = [trace(tmp_path, 0), memory(tmp_path / "first", 0), memory(tmp_path / "second", 0, UNTIMED)]

    error = refused(*sources, folder=tmp_path)

    assert "memory_rank0.pickle and memory_rank0.pickle are both of rank 0" in str(error)

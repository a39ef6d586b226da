"""Merged parts are the original trace, with each event once; merged ranks keep all events, with distinct ids."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import count, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from service.cutting.merge import merge
from service.cutting.source import Source
from service.engine.trace_processor import provision
from service.settings import Settings
from service.store.folder import EVENTS
from service.trace.errors import BadSelection, CannotMerge
from service.trace.piece import Align
from tests.columns import Number, Object, envelope_of, events_of, parsed, unordered
from tests.conftest import DATA, SHARED, needs_shared, scaled
from tests.cutting.choices import Chosen, documents, text_of
from tests.cutting.test_children import split
from tests.cutting.test_cut import SMALL, cut_text, document_of, ingested, lines, plain
from tests.engine.conftest import query_rows, session_on

numbers = count()
NO_CLOSURE = {"flows": False, "launches": False, "kernels": False, "annotations": False}
ALL_OF_IT: dict[str, Chosen] = {
    "start": {"straddle": "start", "closure": NO_CLOSURE},
    "keep": {"straddle": "keep", "closure": NO_CLOSURE},
    "start, closed": {"straddle": "start", "closure": {"flows": False}},
    "keep, closed": {"straddle": "keep", "closure": {"flows": False}},
}


def merged(sources: list[Source], folder: Path, *, align: Align = "none") -> Source:
    """Merge traces, and return the result."""
    progress: list[tuple[int, int]] = []
    target = folder / f"merged{next(numbers)}"

    child = merge(sources, target, name="merged.json", align=align, on_written=lambda *of: progress.append(of))

    assert progress == sorted(progress)
    assert child.id == target.name
    assert child.selection is None
    return Source(target, child.name, child.summary, child.id)


def check_same(result: Source, whole: Source, text: str | bytes) -> None:
    """Check that a merged trace equals the original trace, which has the given text."""
    document = document_of(result)
    assert Counter(lines(document)) == Counter(lines(text))
    assert replace(result.summary, format=whole.summary.format, health=whole.summary.health) == whole.summary
    assert envelope_of(parsed(result.envelope)) == envelope_of(parsed(whole.envelope))


# -- parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", ALL_OF_IT)
@pytest.mark.parametrize("path", SMALL[-2:], ids=lambda path: path.name.partition(".")[0])
def test_merged_parts_of_a_real_trace_are_the_trace(path: Path, selection: str, tmp_path: Path) -> None:
    text = plain(path)
    whole = ingested(text, tmp_path / "whole", path.name)
    children = [
        child for _, child in split(whole, tmp_path, ALL_OF_IT[selection], "parts", Random(selection).choice([2, 5]))
    ]

    if selection == "start":
        child_lines = Counter(
            line for child in children for line in lines(document_of(child)) if '"ph": "M"' not in line
        )
        assert child_lines == Counter(line for line in lines(text) if '"ph": "M"' not in line)
    Random(path.name).shuffle(children)
    check_same(merged(children, tmp_path), whole, text)


@settings(max_examples=scaled(10))
@given(documents(), st.integers(1, 7), st.sampled_from([*ALL_OF_IT]), st.integers(1, 5), st.booleans())
def test_merged_parts_of_a_hostile_document_are_the_document(
    text: str, parts: int, selection: str, size: int, anew: bool
) -> None:
    with (
        TemporaryDirectory() as name,
        mock.patch("service.store.columns.ROW_GROUP", size),
        mock.patch("service.cutting.children.ROW_GROUP", size),
    ):
        folder = Path(name)
        whole = ingested(text, folder / "whole")
        try:
            pairs = split(whole, folder, ALL_OF_IT[selection], "parts", parts)
        except BadSelection:
            assume(False)
        children = [child for _, child in pairs]
        if anew:
            children = [
                ingested(cut_text(whole, selection), folder / f"anew{at}") for at, (selection, _) in enumerate(pairs)
            ]
        result = merged(children, folder)
        assert Counter(lines(document_of(result))) == Counter(lines(text))
        assert envelope_of(parsed(result.envelope)) == envelope_of(parsed(whole.envelope))


@pytest.mark.parametrize("straddle", ["keep", "start"])
def test_merged_parts_with_the_default_closure_lack_only_arrows_across_parts(straddle: str, tmp_path: Path) -> None:
    text = plain(DATA / "cpu_train_steps.pt.trace.json.gz")
    whole = ingested(text, tmp_path / "whole")
    children = [child for _, child in split(whole, tmp_path, {"straddle": straddle}, "parts", 5)]

    result = Counter(lines(document_of(merged(children, tmp_path))))

    missing = Counter(lines(text)) - result
    assert not result - Counter(lines(text))
    ends = [json.loads(line) for line in missing.elements()]
    assert {end["cat"] for end in ends} <= {"fwdbwd"}
    assert {*Counter(end["id"] for end in ends).values()} <= {2}


# -- ranks ------------------------------------------------------------------------------------------------------

SAME = ("ph", "cat", "name", "tid", "tid_text", "dur_ns", "dur_digits", "device", "stream", "bytes", "verbatim")
IDS = {"correlation", "External id", "external id"}


def rows_of(source: Source) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(source.columns / EVENTS).to_pylist()
    return rows


def is_large(number: int | None) -> bool:
    """Return whether an id with one more digit would be too large for columns."""
    return number is not None and abs(number) >= 10**17


def id_of(row: dict[str, Any]) -> Any:
    return row["id"] if row["id"] is not None else row["id_text"]


class IdMapping:
    """Mapping of the ids of a rank to their new ids."""

    def __init__(self) -> None:
        self.forth: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}

    def note(self, old: Any, new: Any) -> None:
        assert (old is None) == (new is None)
        if old is not None:
            assert self.forth.setdefault(old, new) == new
            assert self.back.setdefault(new, old) == old


def check_ranks(result: Source, ranks: list[Source]) -> None:
    """Check that a merged trace has all events of each rank, with distinct ids, new pids and shifted times."""
    merged = rows_of(result)
    document = events_of(parsed(document_of(result)))
    assert len(document) == len(merged)
    owners: Counter[Any] = Counter()
    assert [rank["rank"] for rank in result.summary.ranks] == sorted(rank["rank"] for rank in result.summary.ranks)
    provenance = {rank["rank"]: rank for rank in result.summary.ranks}
    for rank in ranks:
        number = rank.rank if rank.rank is not None else rank.summary.rank
        assert number is not None
        pids: dict[Any, Any] = dict(provenance[number]["pids"])  # type: ignore[arg-type] # pairs as lists
        assert len(pids) == len({*pids.values()})
        merged_pairs = [(row, event) for row, event in zip(merged, document, strict=True) if row["rank"] == number]
        events = events_of(parsed(document_of(rank)))
        own = rows_of(rank)
        assert len(merged_pairs) >= len(own)
        assert all(row["name"] == "process_name" for row, _ in merged_pairs[len(own) :])
        ids = {key: IdMapping() for key in ("id", "correlation", "external_id")}
        for old, original, (new, event) in zip(own, events, merged_pairs, strict=False):
            assert {key: new[key] for key in SAME} == {key: old[key] for key in SAME}
            assert (new["ts_ns"] is None) == (old["ts_ns"] is None)
            if old["ts_ns"] is not None:
                assert new["ts_ns"] - old["ts_ns"] == provenance[number]["shift_ns"]
            pid = old["pid"] if old["pid"] is not None else json.loads(old["pid_text"] or '""')
            assert pids[new["pid"]] == (pid if isinstance(pid, str | int) else old["pid_text"])
            assert new["pid_text"] is None
            for key in ("correlation", "external_id"):
                if new[key] is not None or not is_large(old[key]):
                    ids[key].note(old[key], new[key])
            ids["id"].note(id_of(old), id_of(new))
            check_event(original, event, new, ids, number)
        for key, mapping in ids.items():
            owners.update((key, id_) for id_ in mapping.back)
        owners.update(("pid", pid) for pid in pids)
        counts_of_rank = {key: value for key, value in rank.summary.counts.items() if key.split("|")[0] != "M"}
        counts = Counter(f"{row['ph'] or ''}|{row['cat'] or ''}" for row, _ in merged_pairs if row["ph"] != "M")
        assert counts == counts_of_rank
        assert json.loads(result.envelope)["envelopes"][str(number)] == json.loads(rank.envelope)
    assert {*owners.values()} <= {1}
    names = {process["pid"]: process["name"] for process in result.summary.processes}
    assert all(any(f"rank {number} · " in (names[pid] or "") for number in provenance) for pid in names)


def check_event(original: Object, event: Object, row: dict[str, Any], ids: dict[str, IdMapping], rank: int) -> None:
    assert len(dict(event)) == len(event) or len(dict(original)) < len(original)
    old_members, new_members = (
        [(key, value) for key, value in unordered(item) if key not in ("pid", "ts", "id", "args")]
        for item in (original, event)
    )
    assert new_members == old_members
    assert dict(event)["pid"] == Number(str(row["pid"]))
    if row["id"] is not None:
        assert dict(event)["id"] == Number(str(row["id"]))
    elif row["id_text"] is None:
        assert dict(event).get("id") == dict(original).get("id")
    if row["ts_ns"] is not None:
        assert Decimal(dict(event)["ts"].text) * 1000 // 1 == row["ts_ns"]
    args, old = dict(event).get("args"), dict(original).get("args")
    if row["ph"] == "M" and row["name"] == "process_name":
        assert isinstance(args, Object)
        assert dict(args)["name"].startswith(f"rank {rank} · ")
    elif isinstance(old, Object):
        assert isinstance(args, Object)
        for (key, value), (old_key, old_value) in zip(args, old, strict=True):
            assert key == old_key
            if key not in IDS or not isinstance(value, Number):
                assert value == old_value
        expected = {**{key.lower().replace(" ", "_"): value for key, value in args if key in IDS}}
        for key in ("correlation", "external_id"):
            if row[key] is not None:
                assert expected[key] == Number(str(row[key]))
    else:
        assert args == old


def rank_text(rank: int, *events: dict[str, Any], **around: Any) -> str:
    return text_of(*events, distributedInfo={"rank": rank, "world_size": 3, "backend": "nccl"}, **around)


HERE, THERE = {"pid": 7, "tid": 7}, {"pid": 0, "tid": 7}
SOME: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", **HERE, "args": {"name": "python "}},
    {"ph": "M", "name": "process_labels", **THERE, "args": {"labels": "GPU 0"}},
    {"ph": "M", "name": "process_name", **THERE, "args": {"name": "python "}},
    {"ph": "M", "name": "process_name", "pid": 99999},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **HERE, "ts": 10, "dur": 9, "args": {"External id": 0}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **HERE, "ts": 11, "dur": 7, "args": {"External id": -5, "a": 0}},
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", **HERE, "ts": 12, "dur": 2,
     "args": {"correlation": 12, "External id": 0, "note": '"correlation": 4,'}},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", **HERE, "ts": 12, "id": 12},
    {"ph": "f", "cat": "ac2g", "name": "ac2g", **THERE, "ts": 20, "id": 12, "bp": "e"},
    {"ph": "X", "cat": "kernel", "name": "gemm", **THERE, "ts": 20, "dur": 5,
     "args": {"device": 0, "stream": 7, "correlation": 12, "External id": 0, "External id ": 3, "external": {"x": 0}}},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": "0x1f"},
    {"ph": "f", "cat": "own", "name": "own", **HERE, "ts": 18, "id": "0x1f"},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": 10**20},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": 0},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": -3},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": Decimal("1.5")},
    {"ph": "s", "cat": "own", "name": "own", **HERE, "ts": 12, "id": None},
    {"ph": "X", "name": "no pid", "ts": 3, "dur": 1},
    {"ph": "X", "name": "low pid", "pid": -1, "tid": 1, "ts": 3, "dur": 1},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler",
     "ts": 1, "dur": 90},
    {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 95},
    {"ph": "C", "name": "memory", "pid": 7, "ts": 5, "args": {"bytes": 5}},
]  # fmt: skip


def three(folder: Path, *extra: dict[str, Any] | str) -> list[Source]:
    """Return the ranks 2, 0 and 1 with identical events; `extra` adds events to each."""
    ranks = []
    for rank in (2, 0, 1):
        text = rank_text(rank, *SOME, *(event for event in extra if isinstance(event, dict)))
        for entry in extra:
            text = text.replace('"traceEvents": [', f'"traceEvents": [{entry}, ') if isinstance(entry, str) else text
        ranks.append(ingested(text, folder / f"rank{rank}"))
    return ranks


def test_merge_keeps_identical_ranks_apart(tmp_path: Path) -> None:
    ranks = three(tmp_path)

    result = merged(ranks, tmp_path)

    check_ranks(result, ranks)
    assert (result.summary.rank, result.summary.world_size, result.summary.backend) == (None, 3, "nccl")


ODD = [
    '{"ph": "X", "pid": 7, "tid": 7, "ts": 1e1, "dur": 2, "args": {"correlation": 12, "External id": 0}}',
    '{"ph": "X", "pid": 7, "ts": 9, "ts": 10, "dur": 2, "args": {"correlation": 12, "a": [{"correlation": 1}]}}',
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10.00049, "id": 12}',
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10.00049, "id": 0}',
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10.00049, "id": null}',
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10, "id": -0}',
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10, "id": 999999999999999999}',
    '{"ph": "X", "pid": 7, "tid": 7, "ts": 10, "dur": 1, "args": {"correlation": 999999999999999999}}',
    '{"ph": "X", "pid": null, "tid": 7, "ts": 10, "dur": 1}',
    '{"ph": "X", "pid": true, "tid": 7, "ts": 10, "dur": 1, "other": 1.50}',
    '{"ph": "X", "pid": 1.5, "tid": 7, "ts": 10, "dur": 1}',
    '{"ph": "M", "name": "process_name", "pid": 7, "ts": 1.00049, "args": {"name": "python"}}',
    '{"ph": "M", "name": "process_name", "pid": 7, "args": [1]}',
    '{"ph": "X", "pid": 7, "ts": 10, "dur": 1, "args": {"correlation": 12, "a": {"correlation": 4}}}',
    '{"ph": "X", "pid": 7, "ts": 10, "dur": 1, "args": {"correlation": "12", "External id": 3}}',
]


def test_merge_keeps_odd_events_of_ranks_apart(tmp_path: Path) -> None:
    ranks = three(tmp_path, ", ".join(ODD))

    check_ranks(merged(ranks, tmp_path), ranks)


def check_anew(result: Source, folder: Path) -> Source:
    """Check that the document of a merged trace has the same summary when it is ingested again."""
    anew = ingested(document_of(result), folder / "anew", result.name)
    assert replace(anew.summary, format=result.summary.format, health=result.summary.health) == result.summary
    # times lose their original spelling
    changed = {"position", "args", "rest", "ts_digits", "dur_digits", "verbatim"}
    assert [{key: value for key, value in row.items() if key not in changed} for row in rows_of(anew)] == [
        {key: value for key, value in row.items() if key not in changed} for row in rows_of(result)
    ]
    return anew


LARGE = (
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 1e1, "id": 999999999999999999}, '
    '{"ph": "s", "cat": "ac2g", "pid": 7, "tid": 7, "ts": 10, "id": -999999999999999999}, '
    '{"ph": "X", "pid": null, "tid": 7, "ts": 10.00001, "dur": 1, "args": {"correlation": 999999999999999999}}'
)


@pytest.mark.parametrize("align", ["none", "collectives"])
def test_merged_trace_round_trips_through_its_document(align: Align, tmp_path: Path) -> None:
    ranks = three(tmp_path, LARGE)
    result = merged(ranks, tmp_path, align=align)
    check_ranks(result, ranks)

    anew = check_anew(result, tmp_path)

    for trace in (result, anew):
        children = split(trace, tmp_path / trace.source, {}, "rank")
        assert [selection["ranks"] for selection, _ in children] == [[0], [1], [2]]
        for (rank,), child in ((selection["ranks"], child) for selection, child in children):
            expected = [row for row in rows_of(trace) if row["rank"] == rank]
            own = [{key: value for key, value in row.items() if key != "position"} for row in rows_of(child)]
            missing = [
                row for row in expected if {key: value for key, value in row.items() if key != "position"} not in own
            ]
            # names of processes and threads that have no events in any rank stay in all pieces
            assert {row["rank"] for row in rows_of(child) if row["ph"] != "M"} == {rank}
            assert {row["ph"] for row in missing} <= {"s", "f"}  # arrows without slices, matched by their ids alone
            assert json.loads(child.envelope)["tracedock"]["merged"]


@needs_shared
def test_merge_of_eight_real_ranks_is_one_trace(tmp_path: Path) -> None:
    paths = sorted(SHARED.glob("dlrm_8_ranks/*.gz"))
    ranks = [ingested(plain(path), tmp_path / path.name[:7], path.name) for path in paths]

    result = merged(ranks, tmp_path, align="collectives")

    table = pq.read_table(result.columns / EVENTS)
    times = table["ts_ns"].drop_null().to_numpy()
    assert (times[1:] >= times[:-1]).all()
    used_ids: dict[str, set[Any]] = {key: set() for key in ("id", "correlation", "external_id", "pid")}
    for number, rank in enumerate(ranks):
        merged_part, own = table.filter(pc.equal(table["rank"], number)), pq.read_table(rank.columns / EVENTS)
        merged_part, added_events = merged_part.slice(0, len(own)), merged_part.slice(len(own))
        assert {*added_events["name"].to_pylist()} <= {"process_name"}
        provenance = result.summary.ranks[number]
        assert (provenance["rank"], provenance["name"]) == (number, rank.name)
        assert provenance["collectives"] > 0
        for name in ("ph", "cat", "name", "tid", "dur_ns", "device", "stream", "bytes"):
            assert merged_part[name].to_pylist() == own[name].to_pylist()
        assert {*pc.subtract(merged_part["ts_ns"], own["ts_ns"]).to_pylist()} <= {provenance["shift_ns"], None}
        for key, earlier_ids in used_ids.items():
            old_ids, new_ids = own[key].to_pylist(), merged_part[key].to_pylist()
            pairs = {*zip(old_ids, new_ids, strict=True)} if key != "pid" else {(pid, pid) for pid in new_ids}
            assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)
            ids = {new for _, new in pairs} - {None}
            assert not ids & earlier_ids
            earlier_ids.update(ids)
        id_rows = zip(*(merged_part[name].to_pylist() for name in ("args", "correlation", "external_id")), strict=True)
        for args, correlation, external in islice(id_rows, 0, None, 7):
            if correlation is not None or external is not None:
                members = json.loads(args)
                assert members.get("correlation") == correlation
                assert members.get("External id", members.get("external id")) == external
    flows = [row for row in table.select(["ph", "id", "rank"]).to_pylist() if row["ph"] in "sf"]
    starts, finishes = ({row["id"] for row in flows if row["ph"] == ph} for ph in "sf")
    assert len(starts & finishes) == sum(_whole_arrows(rank) for rank in ranks)
    check_anew(result, tmp_path)
    envelopes = json.loads(result.envelope)["envelopes"]
    assert envelopes == {str(number): json.loads(rank.envelope) for number, rank in enumerate(ranks)}


def _whole_arrows(rank: Source) -> int:
    flows = pq.read_table(rank.columns / EVENTS, columns=["ph", "id"]).to_pylist()
    starts, finishes = ({row["id"] for row in flows if row["ph"] == ph} for ph in "sf")
    return len(starts & finishes)


def gloo(folder: Path) -> list[Source]:
    paths = sorted(DATA.glob("cpu_gloo_rank*"))
    return [ingested(plain(path), folder / path.name[:14], path.name) for path in paths]


def test_engine_loads_all_slices_and_process_names_of_a_merged_trace(
    tmp_path: Path,
) -> None:
    engine = provision.engine_path(Settings())
    ranks = gloo(tmp_path)
    result = merged(ranks, tmp_path, align="collectives")
    check_ranks(result, ranks)
    check_anew(result, tmp_path)

    async def slices(source: Source) -> tuple[int, list[str]]:
        path = tmp_path / f"{source.source}.json"
        path.write_bytes(document_of(source))
        async with session_on(path, engine) as session:
            ((count,),) = await query_rows(session, "SELECT count(*) FROM slice")
            ((dropped,),) = await query_rows(
                session,
                "SELECT ifnull(sum(value), 0) FROM stats WHERE name = 'slice_drop_overlapping_complete_event'",
            )
            name_rows = await query_rows(session, "SELECT name FROM process WHERE name LIKE 'rank %' ORDER BY name")
        return int(str(count)) + int(str(dropped)), [str(name) for (name,) in name_rows]

    together, names = asyncio.run(slices(result))
    counts = [asyncio.run(slices(rank))[0] for rank in ranks]

    assert together == sum(counts) > 0
    assert {name.split(" · ")[0] for name in names} == {"rank 0", "rank 1"}
    assert len(names) >= sum(bool(process["events"]) for process in result.summary.processes)


# -- refused merges ---------------------------------------------------------------------------------------------


def refused(*sources: Source, folder: Path) -> CannotMerge:
    with pytest.raises(CannotMerge) as caught:
        merged([*sources], folder)
    assert not list(folder.glob("merged*"))
    return caught.value


def test_merge_names_two_traces_of_the_same_rank_unless_ranks_are_given(tmp_path: Path) -> None:
    texts = [rank_text(1, *SOME), rank_text(1, *SOME[:-1])]
    first, second = (ingested(text, tmp_path / f"{at}", f"trace {at}") for at, text in enumerate(texts))

    error = refused(first, second, folder=tmp_path)

    assert "trace 0 and trace 1 are both of rank 1" in str(error)
    assert error.as_dict()["traces"] == ["trace 0", "trace 1"]
    ranks = [replace(first, rank=5), replace(second, rank=2)]
    result = merged(ranks, tmp_path)
    check_ranks(result, ranks)
    assert [rank["rank"] for rank in result.summary.ranks] == [2, 5]


def test_merge_names_a_trace_of_unknown_rank(tmp_path: Path) -> None:
    first, second = (
        ingested(rank_text(1, *SOME), tmp_path / "1"),
        ingested(text_of(*SOME), tmp_path / "2", "unknown.json"),
    )

    assert "unknown.json" in str(refused(first, second, folder=tmp_path))
    assert len(merged([first, replace(second, rank=0)], tmp_path).summary.ranks) == 2


def test_merge_refuses_a_merged_trace(tmp_path: Path) -> None:
    ranks = three(tmp_path)
    two, last = merged(ranks[:2], tmp_path / "two"), ranks[2]

    assert two.name in str(refused(two, last, folder=tmp_path))
    assert two.name in str(refused(replace(two, rank=7), last, folder=tmp_path))


def test_merged_parts_of_a_merged_trace_are_the_trace(tmp_path: Path) -> None:
    whole = merged(gloo(tmp_path), tmp_path)
    for selection, by, value in ((ALL_OF_IT["start"], "parts", 3), (ALL_OF_IT["keep"], "rank", None)):
        children = [child for _, child in split(whole, tmp_path, selection, by, value)]  # type: ignore[arg-type]

        result = merged(children, tmp_path)

        assert Counter(lines(document_of(result))) == Counter(lines(document_of(whole)))
        assert result.summary.ranks == whole.summary.ranks
        assert json.loads(result.envelope) == json.loads(whole.envelope)


def test_merged_parts_of_ranks_are_the_merged_ranks(tmp_path: Path) -> None:
    ranks = gloo(tmp_path)
    parts = [child for rank in ranks for _, child in split(rank, tmp_path, ALL_OF_IT["keep"], "parts", 3)]
    Random(1).shuffle(parts)

    result, whole = merged(parts, tmp_path), merged(ranks, tmp_path)

    assert Counter(lines(document_of(result))) == Counter(lines(document_of(whole)))


@settings(max_examples=scaled(10))
@given(documents(), documents(), st.sampled_from(["none", "base"]))
@example('{"traceEvents": [{"ts": 2.0015, "pid": 1, "ph": "M", "name": "process_name"}]}', "[]", "none")
def test_merge_keeps_hostile_ranks_apart(first: str, second: str, align: Align) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        ranks = [replace(ingested(text, folder / f"{at}"), rank=at) for at, text in enumerate((first, second))]
        check_ranks(merged(ranks, folder, align=align), ranks)

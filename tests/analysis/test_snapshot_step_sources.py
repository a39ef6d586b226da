"""The steps of a memory snapshot come from the trace of its rank, if exactly one fits; compared with a plain replay."""

import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.analysis.answers import Answer, answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.store.step_traces import StepTrace, step_trace
from service.trace.errors import BadAnalysisRequest
from service.trace.selection import Selection
from tests.conftest import needs_shared
from tests.cutting.test_cut import ingested
from tests.formats.test_unread import INPUTS
from tests.snapshots import BASE, GOLDEN, MB, STACKS, START_US, block, entry, freed, pickled, segment, snapshot

QUESTION = question_of("memory_snapshot")
ORIGIN_NS = (START_US - 5_000) * 1000 + 123
"""Zero of the traces' clocks in ns since 1970."""


class Block(NamedTuple):
    """A block: times of its allocation and its free in µs since `START_US`, the latter None for never, and its size."""

    begin: int
    end: int | None
    size: int


BLOCKS = [Block(10, 250, 1000), Block(120, 340, 200), Block(150, None, 30), Block(210, None, 4), Block(330, None, 5000)]
"""The first is allocated before the first step and freed in a later one; the third and fourth leak."""
STEPS_NS = [(100_000, 199_000), (200_000, 299_000), (300_000, 399_000)]
"""Starts and ends of steps in ns since `START_US`."""


def snapshot_of(blocks: Sequence[Block], **more: Any) -> bytes:
    """Return a snapshot of blocks, each at its own address."""
    timed: list[tuple[int, list[Any]]] = []
    for place, (begin, end, size) in enumerate(blocks):
        timed.append((begin, [entry("alloc", BASE + place * MB, size, begin, frames=STACKS[1])]))
        if end is not None:
            timed.append((end, freed(BASE + place * MB, size, end)))
    entries = [one for _, entries in sorted(timed, key=lambda row: row[0]) for one in entries]
    return pickled(snapshot(entries, **more))


def trace_of(steps: Sequence[tuple[int, int]], *, base_ns: int | None = ORIGIN_NS, later_ns: int = 0) -> bytes:
    """Return a trace of Kineto with steps, whose bounds are in ns since `START_US`; `later_ns` moves all of them."""
    shift = START_US * 1000 + later_ns - (base_ns or 0)
    events = [
        f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": 1, "tid": 1,'
        f' "ts": {_micros(start + shift)}, "dur": {_micros(end - start)}}}'
        for number, (start, end) in enumerate(steps, 7)
    ]
    events.append('{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}')
    base = "" if base_ns is None else f'"baseTimeNanoseconds": {base_ns}, '
    return f'{{{base}"traceEvents": [{", ".join(events)}]}}'.encode()


def _micros(time_ns: int) -> str:
    assert time_ns >= 0, "the text of a negative time has other digits"
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def replayed(blocks: Sequence[Block], steps: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the active bytes at the start, peak and end of each step, and the bytes allocated and kept.

    A step ends where the next one starts.
    """
    each = [[(begin, size), *([] if end is None else [(end, -size)])] for begin, end, size in blocks]
    changes = sorted(((time * 1000, size) for block in each for time, size in block), key=lambda change: change[0])
    starts = [start for start, _ in steps]
    rows: list[tuple[int, ...]] = []
    for start, end in zip(starts, [*starts[1:], steps[-1][1]], strict=True):
        level = at_start = sum(size for time, size in changes if time < start)
        peak = at_start
        for _, size in (change for change in changes if start <= change[0] < end):
            level += size
            peak = max(peak, level)
        begun = [block for block in blocks if start <= block.begin * 1000 < end]
        kept = sum(block.size for block in begun if block.end is None)
        rows.append((at_start, peak, level, sum(block.size for block in begun), kept))
    return rows


Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("step sources")


@pytest.fixture(scope="module")
def beside(folder: Path) -> Callable[..., StepTrace]:
    """Return a function that ingests a trace that lies beside a snapshot."""
    numbers = iter(range(1_000_000))

    def ingest(content: bytes, name: str = "rank0.json") -> StepTrace:
        source = ingested(content, folder / f"trace{next(numbers)}", name)
        return step_trace(f"id of {name}", name, source.columns, source.summary)

    return ingest


@pytest.fixture(scope="module")
def ask(folder: Path) -> Ask:
    """Return a function that asks for the memory of a snapshot beside traces."""
    numbers, readings = iter(range(1_000_000)), ReadingCache(folder / "spill")

    def memory(content: bytes, *traces: StepTrace, selection: Selection | None = None, **values: Any) -> Answer:
        source = ingested(content, folder / f"{next(numbers)}", "m.pickle")
        given = AnalysisInput(source.columns, replace(source.summary, rank=0), selection, step_traces=traces)
        return answer_question(QUESTION, parameters_of(QUESTION, values), [given], readings)

    return memory


def figures(answer: Answer) -> list[tuple[int, ...]]:
    names = ("start_bytes", "peak_bytes", "end_bytes", "allocated_bytes", "kept_bytes")
    return [tuple(row[name] for name in names) for row in answer.tables["steps"].to_pylist()]


def sources(answer: Answer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer.tables["step_sources"].to_pylist()
    return rows


def test_steps_are_those_of_the_trace_of_the_rank(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    answer = ask(snapshot_of(BLOCKS), beside(trace_of(STEPS_NS)))

    rows = answer.tables["steps"].to_pylist()
    assert [
        (row["name"], row["start_ns"] + 10_000, row["end_ns"] + 10_000) for row in rows
    ] == [  # zero: the first entry
        ("ProfilerStep#7", 100_000, 200_000),
        ("ProfilerStep#8", 200_000, 300_000),
        ("ProfilerStep#9", 300_000, 399_000),
    ]
    assert figures(answer) == [(1000, 1230, 1230, 230, 30), (1230, 1234, 234, 4, 4), (234, 5234, 5034, 5000, 5000)]
    assert figures(answer) == replayed(BLOCKS, STEPS_NS)
    (leak,) = answer.tables["leaks"].to_pylist()
    assert (leak["steps"], leak["of_steps"], leak["left_bytes"]) == (2, 2, 34)
    assert answer.notes == ["Rank 0: steps from trace rank0.json: 3 of its 3 overlap the snapshot's entries."]
    annotations, used = sources(answer)
    assert (annotations["used"], annotations["reason"]) == ("no", "The snapshot has no annotation `ProfilerStep#*`.")
    assert used == {
        "rank": 0, "source": "trace", "trace": "rank0.json", "trace_id": "id of rank0.json", "used": "yes",
        "steps": 3, "of_steps": 3, "reason": None,
    }  # fmt: skip


@pytest.mark.parametrize(("before_ns", "of_step"), [(0, 8), (1, 8), (-1, 7)])
def test_event_at_the_boundary_of_steps_belongs_to_the_step_that_starts(
    before_ns: int, of_step: int, ask: Ask, beside: Callable[..., StepTrace]
) -> None:
    start = 200_000 - before_ns
    steps = [(100_000, start), (start, 300_000)]
    answer = ask(snapshot_of([Block(10, None, 1), Block(200, 290, 50)]), beside(trace_of(steps)))

    (row,) = [row for row in answer.tables["steps"].to_pylist() if row["allocated_bytes"]]
    assert row["name"] == f"ProfilerStep#{of_step}"


def test_times_of_old_traces_are_since_1970(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    answer = ask(snapshot_of(BLOCKS), beside(trace_of(STEPS_NS, base_ns=None)))

    assert figures(answer) == replayed(BLOCKS, STEPS_NS)


def test_steps_outside_of_the_entries_are_left_out_and_cut_ones_have_their_share(
    ask: Ask, beside: Callable[..., StepTrace]
) -> None:
    steps = [(start * 1000, (start + 100) * 1000) for start in range(-300, 700, 100)]
    answer = ask(snapshot_of(BLOCKS), beside(trace_of(steps)))

    rows = answer.tables["steps"].to_pylist()
    assert [(row["name"], row["recorded_pct"]) for row in rows] == [
        ("ProfilerStep#10", 90.0),  # the first entry is at 10 µs
        ("ProfilerStep#11", 100.0),
        ("ProfilerStep#12", 100.0),
        ("ProfilerStep#13", 40.0),  # the last one is at 340 µs
    ]
    assert answer.notes == ["Rank 0: steps from trace rank0.json: 4 of its 10 overlap the snapshot's entries."]


@pytest.mark.parametrize(
    ("later_ns", "reason"),
    [
        (2_000_000_000, "Its steps begin 1.999760 s after the snapshot's last entry."),
        (-4_000_000, "Its steps end 0.003611 s before the snapshot's first entry."),
    ],
)
def test_trace_of_another_time_is_not_used(
    later_ns: int, reason: str, ask: Ask, beside: Callable[..., StepTrace]
) -> None:
    answer = ask(snapshot_of(BLOCKS), beside(trace_of(STEPS_NS, later_ns=later_ns)))

    assert answer.tables["steps"].num_rows == answer.tables["leaks"].num_rows == 0
    [_, trace] = sources(answer)
    assert (trace["used"], trace["steps"], trace["of_steps"], trace["reason"]) == ("no", 0, 3, reason)
    [note] = answer.notes
    assert note.endswith(f"`Optimizer.step#*`. rank0.json: {reason}")


def test_one_of_two_cycles_fits_by_its_time(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    other, fitting = (
        beside(trace_of(STEPS_NS, later_ns=9_000_000), "other.json"),
        beside(trace_of(STEPS_NS), "this.json"),
    )
    answer = ask(snapshot_of(BLOCKS), other, fitting)

    assert [(row["trace"], row["used"]) for row in sources(answer)[1:]] == [("other.json", "no"), ("this.json", "yes")]


def test_several_fitting_traces_are_named_until_one_is_chosen(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    traces = beside(trace_of(STEPS_NS), "a[1].json"), beside(trace_of(STEPS_NS[:2]), "b.json")
    content = snapshot_of(BLOCKS)
    answer = ask(content, *traces)

    assert figures(answer) == []
    reason = "Several traces fit: a[1].json, b.json. Name one with `steps_from`."
    assert [row["reason"] for row in sources(answer)[1:]] == [reason, reason]
    for name, count in (("b.json", 2), ("id of a[1].json", 3), ("a[1]*", 3), ("*b*", 2)):
        chosen = ask(content, *traces, steps_from=name)
        assert figures(chosen) == replayed(BLOCKS, STEPS_NS[:count])
        assert len(sources(chosen)) == 1
    assert figures(ask(content, *traces, steps_from="*.json")) == []
    with pytest.raises(BadAnalysisRequest, match=r"is 'c\.json': there is a\[1\]\.json, b\.json"):
        ask(content, *traces, steps_from="c.json")


def test_annotations_of_the_profiler_go_before_a_trace_and_those_of_the_optimizer_after_it(
    ask: Ask, beside: Callable[..., StepTrace]
) -> None:
    def annotated(name: str) -> bytes:
        notes = [
            {"stage": stage, "name": name, "device": 0, "time_us": START_US + at}
            for stage, at in (("START", 20), ("END", 300))
        ]
        return snapshot_of(BLOCKS, external_annotations=notes)

    fitting, late = beside(trace_of(STEPS_NS)), beside(trace_of(STEPS_NS, later_ns=9_000_000))
    profiler, optimizer = annotated("ProfilerStep#1"), annotated("Optimizer.step#SGD.step")
    for content, trace, values, names in (
        (profiler, fitting, {}, ["ProfilerStep#1"]),
        (profiler, fitting, {"steps_from": "rank0.json"}, ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]),
        (optimizer, fitting, {}, ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]),
        (optimizer, fitting, {"step_name": "Optimizer*"}, ["Optimizer.step#SGD.step"]),
        (optimizer, late, {}, ["Optimizer.step#SGD.step"]),
    ):
        answer = ask(content, trace, **values)
        assert [row["name"] for row in answer.tables["steps"].to_pylist()] == names
        assert [row["used"] for row in sources(answer)].count("yes") == 1


def test_reason_says_why_there_are_no_steps(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    untimed = pickled(snapshot([entry("alloc", BASE, 10)]))
    without_entries = pickled(snapshot([], segments=[segment(BASE, MB, [block(BASE, 10)])]))
    trace = beside(trace_of(STEPS_NS))
    for content, traces, reason in (
        (snapshot_of(BLOCKS), [], "No trace of the same rank is in a run with the snapshot."),
        (snapshot_of(BLOCKS), [beside(trace_of([]))], "It has no steps."),
        (untimed, [trace], "The entries of the snapshot have no times."),
        (without_entries, [trace], "The snapshot has no entries."),
    ):
        answer = ask(content, *traces)
        row = sources(answer)[-1]
        assert (row["used"], row["reason"], row["steps"] or None) == ("no", reason, None)
        assert answer.tables["steps"].num_rows == 0
        assert answer.notes[0].startswith("Rank 0: no steps: The snapshot has no annotation `ProfilerStep#*`")


def test_traces_with_the_same_reason_are_named_together(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    untimed = pickled(snapshot([entry("alloc", BASE, 10)]))
    traces = [beside(trace_of(STEPS_NS), f"{letter}.json") for letter in "abcde"]
    [note] = ask(untimed, *traces).notes
    assert note.endswith(
        "`Optimizer.step#*`. a.json, b.json, c.json, 2 more: The entries of the snapshot have no times."
    )


def test_trace_with_a_long_list_of_steps_that_was_deleted_is_a_reason(
    ask: Ask, beside: Callable[..., StepTrace]
) -> None:
    """The catalog has the first 4,096 steps, and a file beside the columns has all of them."""
    steps = [(start * 1000, start * 1000 + 999) for start in range(5000)]
    trace, content = beside(trace_of(steps)), snapshot_of([Block(4200, 4300, 7)])
    assert trace.summary.totals == {"steps": 5000}
    assert len(figures(ask(content, trace))) == 101

    shutil.rmtree(trace.columns)
    assert sources(ask(content, trace))[-1]["reason"] == "It was deleted meanwhile."


def test_names_of_annotations_and_a_trace_are_not_given_at_once(ask: Ask) -> None:
    with pytest.raises(BadAnalysisRequest, match="name one"):
        ask(snapshot_of(BLOCKS), step_name="a", steps_from="b")


def test_part_of_a_snapshot_has_the_steps_that_overlap_it(ask: Ask, beside: Callable[..., StepTrace]) -> None:
    part = Selection(
        window={"start_ns": 190_000, "end_ns": 245_000}
    )  # 200 µs to 255 µs, of which 210 µs and 250 µs have entries
    answer = ask(snapshot_of(BLOCKS), beside(trace_of(STEPS_NS)), selection=part)

    assert [row["name"] for row in answer.tables["steps"].to_pylist()] == ["ProfilerStep#8"]


@needs_shared
@pytest.mark.parametrize("name", ["mem_forward_fp32", "mem_inference_user_metadata", "mem_own_all_actions"])
def test_steps_of_a_real_snapshot_equal_a_plain_replay(name: str, ask: Ask, beside: Callable[..., StepTrace]) -> None:
    content = (INPUTS / GOLDEN[name]).read_bytes()
    entries = pickle.loads(content)["device_traces"][0]
    effects = {"alloc": 1, "free_completed": -1}
    changes = [
        ((entry["time_us"] - START_US) * 1000, effects[entry["action"]] * entry["size"])
        for entry in entries
        if entry["action"] in effects
    ]
    first, last = changes[0][0], changes[-1][0]
    bounds = [first + (last - first) * part // 7 + 333 * part for part in range(-1, 8)]
    base_ns = START_US * 1000 + bounds[0] - 1_000_123
    answer = ask(content, beside(trace_of([*pairwise(bounds)], base_ns=base_ns)))

    level = next(row["start_bytes"] for row in answer.tables["devices"].to_pylist() if row["device"] == 0)
    expected = []
    for start, end in pairwise(bounds[1:]):
        at_start = peak = level
        for _, size in (change for change in changes if start <= change[0] < end):
            level += size
            peak = max(peak, level)
        expected.append((at_start, peak, level))
    rows = [row for row in answer.tables["steps"].to_pylist() if row["device"] == 0]
    assert [(row["start_bytes"], row["peak_bytes"], row["end_bytes"]) for row in rows] == expected
    assert [row["name"] for row in rows] == [f"ProfilerStep#{number}" for number in range(8, 15)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.none() | st.integers(1, 200), st.integers(1, 99)), min_size=1, max_size=15
    ),
    st.lists(st.integers(1, 150_000), min_size=1, max_size=5),
    st.integers(-200_000, 300_000),
)
def test_steps_equal_a_plain_replay(
    ask: Ask,
    beside: Callable[..., StepTrace],
    drawn: list[tuple[int, int | None, int]],
    lengths: list[int],
    first_ns: int,
) -> None:
    blocks = [Block(begin, begin + length if length else None, size) for begin, length, size in drawn]
    bounds = [first_ns + sum(lengths[:count]) for count in range(len(lengths) + 1)]
    steps = [*pairwise(bounds)]
    times = [time * 1000 for block in blocks for time in (block.begin, block.end) if time is not None]
    kept = [
        row
        for (start, end), row in zip(steps, replayed(blocks, steps), strict=True)
        if start <= max(times) and end > min(times)
    ]

    answer = ask(snapshot_of(blocks), beside(trace_of(steps)))

    assert figures(answer) == kept
    assert [row["used"] for row in sources(answer)][-1] == ("yes" if kept else "no")

"""Traces of several cycles: separate rows in every table, and collectives only within a cycle."""

import json
from collections import defaultdict
from typing import Any

import pytest

from service.analysis.catalogue import QUESTIONS
from service.analysis.names import COMPARISONS
from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.analysis.conftest import Ask
from tests.conftest import SHARED, needs_shared
from tests.traces import TraceShape, trace_chunks

DLRM = sorted(SHARED.glob("dlrm_8_ranks/*"))


def trace_text(rank: int, cycle: int) -> str:
    shape = TraceShape(rank=rank, world_size=2, steps=2, first_step=3 + 10 * cycle, seed=rank + 10 * cycle)
    return b"".join(trace_chunks(shape)).decode()


def without_cycle(rows: list[dict[str, Any]], cycle: int) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "cycle"} for row in rows if row["cycle"] == cycle]


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name not in COMPARISONS])
def test_answer_for_two_cycles_joins_the_answers_of_each_cycle(name: str, ask: Ask) -> None:
    cycles = [[trace_text(rank, cycle) for rank in range(2)] for cycle in range(2)]
    try:
        single = [ask(name, *traces) for traces in cycles]
    except NotApplicable:
        with pytest.raises(NotApplicable):
            ask(name, *cycles[1], *cycles[0])
        return
    joint = ask(name, cycles[1][0], *cycles[0], cycles[1][1])
    assert (joint.answer.cycles, single[0].answer.cycles) == (2, 1)
    for table, rows in joint.items():
        columns = [column.name for column in joint.answer.columns(table)]
        assert columns == joint.answer.tables[table].schema.names
        assert "rank" not in columns or columns.index("cycle") == columns.index("rank") + 1
        for cycle in range(2):
            assert sorted(map(str, without_cycle(rows, cycle))) == sorted(map(str, single[cycle][table]))
    answer = json.loads(joint.answer.form("json"))
    assert all("cycle" in [column["name"] for column in table["columns"]] for table in answer["tables"].values())


def test_selection_of_a_step_answers_only_for_its_cycle(ask: Ask) -> None:
    traces = [trace_text(rank, cycle) for cycle in range(2) for rank in range(2)]
    result = ask("temporal_breakdown", *traces, selection=Selection(steps=[13]))
    assert [(row["rank"], row["cycle"]) for row in result["breakdown"]] == [(0, 1), (1, 1)]
    assert [(row["rank"], row["cycle"]) for row in result.answer.skipped] == [(0, 0), (1, 0)]
    assert all("13" in row["reason"] for row in result.answer.skipped)


def test_skipped_ranks_are_listed_with_their_cycle(ask: Ask) -> None:
    events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#90", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]
    cpu_only = json.dumps({"distributedInfo": {"rank": 1, "world_size": 2}, "traceEvents": events})
    result = ask("temporal_breakdown", trace_text(0, 0), trace_text(1, 0), cpu_only)
    assert [(row["rank"], row["cycle"]) for row in result.answer.skipped] == [(1, 1)]
    assert {(row["rank"], row["cycle"]) for row in result["breakdown"]} == {(0, 0), (1, 0)}


@needs_shared
def test_kernel_totals_cover_all_ranks(ask: Ask) -> None:
    answer = ask("kernel_breakdown", *DLRM, top=1000)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    types: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in answer["kernels"]:
        totals = sums[row["type"], row["name"]]
        totals[0], totals[1] = totals[0] + row["count"], totals[1] + row["sum_ns"]
        totals[2] = max(totals[2], row["max_ns"])
        types[row["type"]][0] += row["count"]
        types[row["type"]][1] += row["sum_ns"]
    rows = {(row["type"], row["name"]): [row["count"], row["sum_ns"], row["max_ns"]] for row in answer["total_kernels"]}
    assert rows == sums
    assert {row["type"]: [row["count"], row["sum_ns"]] for row in answer["total_types"]} == types
    assert sum(row["sum_pct"] for row in answer["total_kernels"]) == pytest.approx(100)
    top_rows = ask("kernel_breakdown", *DLRM, top=2)
    assert top_rows["total_types"] == answer["total_types"]
    for type_ in types:
        all_rows, listed_rows = (
            [row for row in breakdown["total_kernels"] if row["type"] == type_ and row["name"] != "others"]
            for breakdown in (answer, top_rows)
        )
        assert listed_rows == all_rows[:2]
    assert sum(row["sum_ns"] for row in top_rows["total_kernels"]) == sum(
        row["sum_ns"] for row in answer["total_kernels"]
    )


@needs_shared
def test_repeated_real_run_is_two_cycles_with_separate_collectives(ask: Ask) -> None:
    single, repeated = ask("collectives", *DLRM), ask("collectives", *DLRM, *DLRM)
    assert repeated.answer.cycles == 2
    for cycle in range(2):
        assert without_cycle(repeated["collectives"], cycle) == single["collectives"]
    assert max(row["ranks"] for row in repeated["collectives"]) == 8  # of its cycle, not all 16 traces

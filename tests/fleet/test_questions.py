"""Questions about a fleet say what a plain computation over the facts of its ranks says."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pyarrow as pa
import pytest

from service.fleet.dataset import Dataset
from service.fleet.facts import TABLES, encoded
from service.fleet.merging import merge_facts
from service.fleet.questions.catalogue import QUESTIONS, question_of
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetAnswer, ask
from service.fleet.record import DONE, Record
from service.trace.errors import BadFleetRequest

RANKS, HOSTS, STEPS = 8, 4, 6
SLOW_RANK, SLOW_HOST, BAD_STEP = 5, 2, 4
Row = dict[str, Any]


def rank_facts(run: str, rank: int) -> dict[str, list[Row]]:
    """Return the facts of a made rank.

    Rank 5 computes longer in each step, step 4 of rank 1 went wrong, host 2 has a slow kernel, and the second run has
    slower kernels. All ranks of a step end together, because fast ranks wait.
    """
    host, is_later = rank % HOSTS, run == "second"
    steps, communications, start = [], [], 0
    for step in range(STEPS):
        own = [_own(each, step) for each in range(RANKS)]
        total = max(own) + 1000 + (500 if is_later else 0)
        wait = total - own[rank]
        times = {"kernel_ns": own[rank], "communication_ns": wait}
        steps.append({"step": step, "start_ns": start, "end_ns": start + total, "total_ns": total, **times})
        communications.append(
            {
                "process_group": "0", "group_ranks": "[0, 1, …]", "by_seq": 1, "number": step, "occurrence": 0,
                "collective": "allreduce", "group_size": RANKS, "start_ns": start + own[rank], "end_ns": start + total,
            }
        )  # fmt: skip
        start += total
    gemm = 100 + (30 if host == SLOW_HOST else rank % 3) + (50 if is_later else 0)
    kernels = [
        {"type": "COMP", "name": "gemm", "count": 10, "sum_ns": 10 * gemm, "min_ns": gemm, "max_ns": gemm},
        {"type": "COMM", "name": "nccl", "count": STEPS, "sum_ns": 9 * rank, "min_ns": 1, "max_ns": 9},
    ]
    return {"steps": steps, "kernels": kernels, "collectives": communications, "devices": []}


def _own(rank: int, step: int) -> int:
    own = 10_000 + 7 * ((3 * rank + step) % 5)
    return own + (900 if rank == SLOW_RANK else 0) + (8000 if rank == 1 and step == BAD_STEP else 0)


def add_rank(dataset: Dataset, run: str, rank: int, like: int | None = None, group_ranks: str | None = None) -> Record:
    """Write the facts and the record of a made rank, whose facts are its own or those of another rank."""
    trace = f"{run}-{rank}"
    of_group = {"group_ranks": group_ranks, "group_size": RANKS // 2} if group_ranks else {}
    tables = {}
    for name, rows in rank_facts(run, rank if like is None else like).items():
        filled = [
            {field.name: row.get(field.name, 0 if field.type == pa.int64() else None) for field in TABLES[name]}
            | {"trace": trace, "rank": rank, **(of_group if name == "collectives" else {})}
            for row in rows
        ]
        tables[name] = pa.Table.from_pylist(filled, TABLES[name])
    dataset.location.write(f"traces/{trace}/facts.arrow", encoded(tables))
    record = Record(
        key=trace, run=run, source=f"/{trace}", name=trace, size_bytes=1, state=DONE, trace=trace, rank=rank,
        world_size=RANKS, host=f"node{rank % HOSTS}", base_ns=10**18 if run == "second" else 10**17, start_ns=0,
        end_ns=1, steps=STEPS, ended_ns=1,
    )  # fmt: skip
    dataset.record(record)
    return record


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset of two runs, of which some traces are in two parts, some in one, and some in none."""
    dataset = Dataset.create(str(tmp_path_factory.mktemp("questions")))
    records = [add_rank(dataset, run, rank) for run in ("first", "second") for rank in range(RANKS)]
    merge_facts(dataset, records[:6], ())
    merge_facts(dataset, records[4:10], ())
    return dataset


@pytest.fixture
def facts(dataset: Dataset) -> Iterator[FactsDatabase]:
    with FactsDatabase.of(dataset) as opened:
        yield opened


def answered(facts: FactsDatabase, name: str, run: str | None = "first", **values: Any) -> FleetAnswer:
    return ask(question_of(name), facts, run, values)


def rows(answer: FleetAnswer, table: str) -> list[Row]:
    found: list[Row] = answer.tables[table].to_pylist()
    return found


def all_facts(run: str, table: str) -> list[Row]:
    """Return the facts of a run, each with its rank and host."""
    return [
        {**row, "rank": rank, "host": f"node{rank % HOSTS}"}
        for rank in range(RANKS)
        for row in rank_facts(run, rank)[table]
    ]


def by(entries: list[Row], *names: str) -> Mapping[Any, list[Row]]:
    grouped: dict[Any, list[Row]] = defaultdict(list)
    for entry in entries:
        grouped[tuple(entry[name] for name in names)].append(entry)
    return grouped


def test_each_trace_counts_once_whatever_parts_it_is_in(facts: FactsDatabase) -> None:
    for table in TABLES:
        expected = len(all_facts("first", table)) + len(all_facts("second", table))
        assert facts.table(f"SELECT count(*) FROM {table}")[0].to_pylist() == [expected], table
    assert facts.runs == ["first", "second"]


def test_slow_ranks_and_hosts(facts: FactsDatabase) -> None:
    answer = answered(facts, "slow_ranks")
    own = {
        rank: fmean(step["total_ns"] - step["communication_ns"] for step in steps)
        for (rank,), steps in by(all_facts("first", "steps"), "rank").items()
    }
    found = rows(answer, "ranks")
    assert {row["rank"]: row["own_ns"] for row in found} == pytest.approx(own)
    assert [row["own_ns"] for row in found] == sorted(own.values(), reverse=True)
    worst = {row["rank"] for row in found[:2]}
    assert worst == {SLOW_RANK, 1}
    for row in found:
        assert row["over_median_pct"] == pytest.approx(100 * (own[row["rank"]] / median(own.values()) - 1))
    hosts = {f"node{host}": fmean(own[rank] for rank in range(host, RANKS, HOSTS)) for host in range(HOSTS)}
    assert {row["host"]: row["own_ns"] for row in rows(answer, "hosts")} == pytest.approx(hosts)
    assert rows(answer, "hosts")[0]["slowest_rank"] in {SLOW_RANK, 1}


@pytest.mark.parametrize("value", ["own", "total", "communication"])
def test_step_matrix_has_each_rank_and_step(facts: FactsDatabase, value: str) -> None:
    answer = answered(facts, "step_matrix", value=value)
    steps = by(all_facts("first", "steps"), "step")
    expected: dict[tuple[int, int], Any] = {}
    for (step,), entries in steps.items():
        times = {
            entry["rank"]: entry["total_ns"] - entry["communication_ns"] if value == "own" else entry[f"{value}_ns"]
            for entry in entries
        }
        middle = median(times.values())
        expected |= {(step, rank): (time, pytest.approx(100 * (time / middle - 1))) for rank, time in times.items()}
        [summary] = [row for row in rows(answer, "steps") if row["step"] == step]
        assert (summary["ranks"], summary["median_ns"], summary["max_ns"]) == (RANKS, middle, max(times.values()))
        assert times[summary["slowest_rank"]] == max(times.values())
    found = {(row["step"], row["rank"]): (row["value_ns"], row["over_median_pct"]) for row in rows(answer, "matrix")}
    assert found == expected


def test_step_that_went_wrong_is_found_where_it_did(facts: FactsDatabase) -> None:
    answer = answered(facts, "step_outliers")
    outliers = {(row["step"], row["rank"]) for row in rows(answer, "outliers")}
    assert outliers == {(step, SLOW_RANK) for step in range(STEPS)} | {(BAD_STEP, 1)}
    worst = rows(answer, "outliers")[0]
    assert (worst["step"], worst["rank"], worst["host"]) == (BAD_STEP, 1, "node1")
    entries = by(all_facts("first", "steps"), "step")[BAD_STEP,]
    own = [entry["total_ns"] - entry["communication_ns"] for entry in entries]
    deviation = median(abs(each - median(own)) for each in own)
    assert worst["score"] == pytest.approx(0.6745 * (own[1] - median(own)) / deviation)
    slowest = max(rows(answer, "steps"), key=lambda row: row["over_pct"])
    assert (slowest["step"], slowest["outliers"], slowest["hosts"]) == (BAD_STEP, 2, "node1")
    assert {(row["step"], row["rank"]) for row in rows(answered(facts, "step_outliers", over_pct=20), "outliers")} == {
        (BAD_STEP, 1)
    }


def test_kernel_that_is_slow_on_a_host_is_found(facts: FactsDatabase) -> None:
    [found] = rows(answered(facts, "kernel_outliers"), "kernels")
    means = {
        host: sum(entry["sum_ns"] for entry in entries) / sum(entry["count"] for entry in entries)
        for (host, name), entries in by(all_facts("first", "kernels"), "host", "name").items()
        if name == "gemm"
    }
    assert (found["host"], found["name"], found["rank"], found["places"]) == ("node2", "gemm", None, HOSTS)
    assert (found["mean_ns"], found["median_ns"]) == (means["node2"], median(means.values()))
    assert found["excess_ns"] == pytest.approx((means["node2"] - median(means.values())) * found["count"])
    by_rank = rows(answered(facts, "kernel_outliers", by="rank"), "kernels")
    assert {row["rank"] for row in by_rank} == {SLOW_HOST, SLOW_HOST + HOSTS}
    assert "nccl" in {row["name"] for row in rows(answered(facts, "kernel_outliers", communication=True), "kernels")}


def test_rank_that_is_always_last_is_found(facts: FactsDatabase) -> None:
    [found] = rows(answered(facts, "last_ranks"), "ranks")
    waits = [
        sum(entry["end_ns"] - entry["start_ns"] for entry in entries)
        - RANKS * min(entry["end_ns"] - entry["start_ns"] for entry in entries)
        for (number,), entries in by(all_facts("first", "collectives"), "number").items()
        if number != BAD_STEP
    ]
    assert (found["rank"], found["host"]) == (SLOW_RANK, "node1")
    assert (found["times_last"], found["collectives"]) == (STEPS - 1, STEPS)
    assert found["waited_for_ns"] == sum(waits)
    assert {row["rank"] for row in rows(answered(facts, "last_ranks", last_pct=0), "ranks")} == {SLOW_RANK, 1}


def test_collectives_that_lack_a_rank_do_not_count(tmp_path: Path) -> None:
    dataset = Dataset.create(str(tmp_path))
    for rank in range(RANKS - 1):
        add_rank(dataset, "first", rank)
    with FactsDatabase.of(dataset) as facts:
        assert rows(answered(facts, "last_ranks", last_pct=0), "ranks") == []


def test_groups_that_share_a_name_have_their_own_last_ranks(tmp_path: Path) -> None:
    dataset, half = Dataset.create(str(tmp_path)), RANKS // 2
    groups = [str([*range(half)]), str([*range(half, 2 * half)])]
    for rank in range(2 * half):
        add_rank(dataset, "first", rank, group_ranks=groups[rank // half])
    with FactsDatabase.of(dataset) as facts:
        found = rows(answered(facts, "last_ranks", last_pct=0), "ranks")
    assert {(row["group_ranks"], row["collectives"]) for row in found} == {(group, STEPS) for group in groups}
    for row in found:
        assert row["rank"] in json.loads(row["group_ranks"])


def test_drift_between_runs(facts: FactsDatabase) -> None:
    answer = answered(facts, "drift", run="second")
    totals = {run: median(step["total_ns"] for step in all_facts(run, "steps")) for run in ("first", "second")}
    runs = {row["run"]: row for row in rows(answer, "runs")}
    assert {run: row["total_ns"] for run, row in runs.items()} == totals
    assert runs["first"]["change_pct"] is None
    assert runs["second"]["change_pct"] == pytest.approx(100 * (totals["second"] / totals["first"] - 1))
    gemm = rows(answer, "kernels")[0]
    assert gemm["name"] == "gemm"
    assert gemm["mean_ns"] - gemm["base_mean_ns"] == pytest.approx(50)
    assert gemm["change_per_step_ns"] == pytest.approx(50 * 10 / STEPS)
    with pytest.raises(BadFleetRequest, match="No run has started before first"):
        answered(facts, "drift", run="first")


def test_forms_of_an_answer(facts: FactsDatabase) -> None:
    answer = answered(facts, "slow_ranks")
    assert answer.form("csv").startswith(b'"rank","host"')
    assert answer.form("csv", ["hosts"]).startswith(b'"host"')
    assert pa.ipc.open_stream(answer.form("arrow")).read_all().num_rows == RANKS
    with pytest.raises(BadFleetRequest, match="has the tables ranks, hosts"):
        answer.form("json", ["other"])


def test_unknown_names_are_refused_with_what_exists(facts: FactsDatabase) -> None:
    for name, run, values, message in [
        ("nothing", "first", {}, "Known are slow_ranks"),
        ("slow_ranks", None, {}, "Name a run. Done are traces of first, second"),
        ("slow_ranks", "third", {}, "There is no run 'third'"),
        ("slow_ranks", "first", {"colour": "red"}, "Its parameters: none"),
        ("step_matrix", "first", {"value": "colour"}, "Its parameters: value"),
        ("drift", "second", {"base": "third"}, "There is no run 'third'"),
    ]:
        with pytest.raises(BadFleetRequest) as refused:
            answered(facts, name, run, **values)
        assert message in refused.value.detail


def test_dataset_without_traces_has_nothing_to_ask(tmp_path: Path) -> None:
    with FactsDatabase.of(Dataset.create(str(tmp_path))) as facts:
        for name in QUESTIONS:
            with pytest.raises(BadFleetRequest, match="No trace is done yet"):
                answered(facts, name, None)

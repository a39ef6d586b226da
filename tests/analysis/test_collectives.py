"""Collectives across ranks, compared with TraceLens, TensorBoard, HTA and a plain loop."""

import csv
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.conftest import DATA, SHARED, needs_shared, scaled

DLRM = sorted(SHARED.glob("dlrm_8_ranks/*"))
MI300 = "mi300_resnet_rank0_of_8"
GIB = 2**30 / 10**9
"""Gigabytes in one of TraceLens's GB, which is a GiB."""


def lens(trace: str, table: str) -> list[dict[str, str]]:
    with (SHARED / "golden" / "tracelens" / trace / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def ns(text: str) -> int:
    """Parse µs and return whole nanoseconds."""
    microseconds, _, decimals = text.partition(".")
    return int(microseconds) * 1000 + int(f"{decimals:0<3}"[:3])


def near(text: str) -> Any:
    """Parse µs and return nanoseconds with a tolerance of 10 ns."""
    return pytest.approx(float(text) * 1000, abs=10)


def answer_of(ask: Ask, name: str, **parameters: Any) -> dict[str, Rows]:
    traces = DLRM if name.startswith("dlrm") else [real(MI300)]
    return ask("collectives", *traces, collectives="synchronizing", **parameters)


@needs_shared
def test_collectives_equal_tracelens(ask: Ask) -> None:
    """TraceLens finds no sizes of the DLRM ranks; their launches record them."""
    answer = answer_of(ask, "dlrm_8_ranks_nccl")
    waits = {(row["process_group"], row["index"], row["rank"]): row for row in answer["waits"]}
    for row, expected in zip(answer["collectives"], lens("dlrm_8_ranks_nccl", "nccl_implicit_sync"), strict=True):
        assert (row["process_group"] or "all") == expected["Process Group Name"]
        assert expected["collective_id"] == str(row["index"])
        assert row["latency_ns"] == row["duration_ns"] == near(expected["comm_latency"])
        assert row["start_skew_ns"] == near(expected["skew in start time"])
        assert row["end_skew_ns"] == near(expected["skew in end time"])
        assert row["mean_wait_ns"] == near(expected["avg_wait_time"])
        assert row["first_rank"] == int(expected["earliest arrival rank"])
        assert row["consistent"] == "yes"
        for rank in range(row["ranks"]):
            wait = waits[row["process_group"], row["index"], rank]
            assert wait["start_ns"] == ns(expected[f"rank_{rank}_ts"])
            assert wait["duration_ns"] == ns(expected[f"rank_{rank}_dur"])
            assert wait["wait_ns"] == near(expected[f"rank_{rank}_wait_time"])


@needs_shared
def test_bandwidths_equal_tracelens(ask: Ask) -> None:
    """With one rank of eight, TraceLens's latency is the duration of the only known kernel."""
    answer = answer_of(ask, "mi300_resnet_nccl")
    for row, expected in zip(answer["collectives"], lens("mi300_resnet_nccl", "nccl_implicit_sync"), strict=True):
        assert expected["collective_id"] == f"{row['process_group']}_{row['index']}"
        assert row["duration_ns"] == near(expected["comm_latency"])
        assert row["algorithm_gb_per_s"] == pytest.approx(float(expected["algo bw (GB/s)"]) * GIB)
        assert row["bus_gb_per_s"] == pytest.approx(float(expected["bus bw (GB/s)"]) * GIB)
        assert row["size_bytes"] / 2**20 == float(expected["Full msg size (MB)"])
        assert row["collective"] == expected["Collective name"]


UNKNOWN_OF_ONE_RANK = {
    "collectives": (
        "latency_ns", "start_skew_ns", "end_skew_ns", "mean_wait_ns", "first_rank", "last_rank", "late_cause", "spent"
    ),
    "waits": ("wait_ns", "transfer_ns", "late_ns", "late_at_launch_ns", "late_cause"),
    "ranks": (
        "straggler", "wait_ns", "mean_wait_ns", "transfer_ns", "times_first", "times_last", "last_pct",
        "waited_for_ns", "late_ns", "late_at_launch_ns", "late_cause",
    ),
    "operations": ("transfer_ns",),
    "steps": ("transfer_ns", "synchronizing_ns"),
    "sizes": ("latency_ns", "mean_latency_ns", "mean_start_skew_ns", "mean_end_skew_ns"),
}  # fmt: skip


@needs_shared
@pytest.mark.parametrize("name", [MI300, "a100_nccl_3_steps", "b200_eager_rank0_of_8", "gloo_cpu_rank34_of_300"])
def test_one_rank_of_many_has_unknown_waits(name: str, ask: Ask) -> None:
    answer = ask("collectives", real(name))
    for table, columns in UNKNOWN_OF_ONE_RANK.items():
        assert answer[table]
        assert {row[column] for row in answer[table] for column in columns} == {None}
    assert answer["lateness"] == []
    # collectives of symmetric memory, on the B200
    of = "traces cover only (1 of the [0-9]+ ranks of its group|one rank of an unknown number)"
    assert all(re.match(of, row["note"]) for row in answer["collectives"])
    assert all("lack the traces of other ranks" in row["note"] for row in answer["ranks"])
    sized = [row for row in answer["collectives"] if row["size_bytes"]]
    assert sized
    assert all(row["duration_ns"] and row["algorithm_gb_per_s"] for row in sized)
    assert all((row["bus_gb_per_s"] is None) == (row["group_size"] is None) for row in sized)
    assert any(row["bus_gb_per_s"] for row in sized)


def of_dlrm(path: Path) -> list[tuple[int, int, str, str, int]]:
    """Return start, duration, operation, type and number of elements of each collective of a rank, in plain Python."""
    with gzip.open(path, "rt") as file:
        events = [entry for entry in json.load(file)["traceEvents"] if entry.get("ph") == "X"]
    calls = {event["args"]["correlation"]: event for event in events if event["name"] == "cudaLaunchKernel"}
    annotations = [event for event in events if event["name"].startswith("nccl:")]
    rows = []
    for kernel in events:
        if kernel["name"].startswith("ncclKernel"):
            call = calls[kernel["args"]["correlation"]]
            [around] = [
                annotation
                for annotation in annotations
                if (annotation["pid"], annotation["tid"]) == (call["pid"], call["tid"])
                and annotation["ts"] <= call["ts"]
                and call["ts"] + call["dur"] <= annotation["ts"] + annotation["dur"]
            ]
            [[elements]], [dtype] = around["args"]["Input Dims"], around["args"]["Input type"]
            rows.append((kernel["ts"] * 1000, kernel["dur"] * 1000, around["name"][5:], dtype, elements))
    return sorted(rows)


@needs_shared
def test_dlrm_ranks_have_the_size_and_bandwidth_of_each_collective(ask: Ask) -> None:
    answer, bytes_of = ask("collectives", *DLRM), {"float": 4, "int": 4, "long int": 8}
    expected = {rank: of_dlrm(path) for rank, path in enumerate(DLRM)}
    assert {len(row) for row in expected.values()} == {8}
    for row in answer["waits"]:
        start, duration, name, dtype, elements = expected[row["rank"]][row["index"]]
        size, factor = elements * bytes_of[dtype], 2 * 7 / 8 if name == "all_reduce" else 7 / 8
        assert (row["start_ns"], row["duration_ns"], row["source"]) == (start, duration, "annotation")
        assert (row["collective"], row["dtype"], row["in_elements"], row["size_bytes"]) == (name, dtype, elements, size)
        assert row["algorithm_gb_per_s"] == pytest.approx(size / duration)
        assert row["bus_gb_per_s"] == pytest.approx(factor * size / duration)
    assert len(answer["waits"]) == 64
    for row in answer["collectives"]:
        _, _, name, dtype, elements = expected[0][row["index"]]
        shortest = min(entry[row["index"]][1] for entry in expected.values())
        assert row["latency_ns"] == shortest
        assert row["algorithm_gb_per_s"] == pytest.approx(elements * bytes_of[dtype] / shortest)
        assert (row["group_size"], row["spent"]) == (8, "waiting")
        assert row["note"].startswith("the trace records no process group")


@needs_shared
def test_dlrm_rank_7_is_late_before_its_launches(ask: Ask) -> None:
    answer = ask("collectives", *DLRM)
    worst = answer["ranks"][0]
    assert (worst["rank"], worst["straggler"], worst["times_last"]) == (7, "yes", 5)
    assert worst["waited_for_ns"] == max(row["waited_for_ns"] for row in answer["ranks"])
    assert worst["late_at_launch_ns"] > 0.99 * worst["late_ns"]
    causes = [row for row in answer["lateness"] if row["rank"] == 7]
    assert sum(row["late_ns"] for row in causes) == worst["late_ns"]
    assert sum(row["times_last"] for row in causes) == 5
    assert {row["cause"] for row in causes} >= {"before the trace", "data loading", "host"}
    steps = {row["rank"]: (row["transfer_ns"], row["synchronizing_ns"]) for row in answer["steps"]}
    assert steps[0] == (217_000, 5_581_000)


@needs_shared
def test_late_ranks_equal_tracelens(ask: Ask) -> None:
    name = "dlrm_8_ranks_nccl"
    for row, expected in zip(answer_of(ask, name)["ranks"], lens(name, "straggler_summary"), strict=True):
        assert row["rank"] == int(expected["rank"])
        assert row["wait_ns"] == near(expected["total_wait_time_us"])
        assert row["mean_wait_ns"] / 1000 == pytest.approx(float(expected["mean_wait_time_us"]), abs=0.0501)
        assert row["times_first"] == int(expected["times_arrived_first"])
        assert row["times_last"] == int(expected["times_arrived_last"])
        assert row["last_pct"] == pytest.approx(float(expected["pct_arrived_last"]), abs=0.0501)
        assert row["collectives"] == int(expected["num_collectives"])
        assert row["communication_ns"] / 1000 == pytest.approx(float(expected["total_nccl_dur_us"]), abs=0.0501)


@needs_shared
def test_sums_by_size_equal_tracelens(ask: Ask) -> None:
    """TraceLens finds no names for the DLRM ranks and sums them in one row; one rank of eight has no latencies."""
    rows = answer_of(ask, "mi300_resnet_nccl")["sizes"]
    expected_rows = {row["In msg nelems"]: row for row in lens("mi300_resnet_nccl", "nccl_summary_implicit_sync")}
    assert len(rows) == len(expected_rows)
    for row in rows:
        expected = expected_rows[f"{row['in_elements']:.1f}"]
        assert (row["collective"], row["dtype"]) == (expected["Collective name"], expected["dtype"])
        assert (row["count"], row["latency_ns"]) == (int(expected["count"]), None)
        for kind, suffix in (("mean", "mean"), ("stddev", "std")):
            assert row[f"{kind}_algorithm_gb_per_s"] == pytest.approx(float(expected[f"algo bw (GB/s)_{suffix}"]) * GIB)
            assert row[f"{kind}_bus_gb_per_s"] == pytest.approx(float(expected[f"bus bw (GB/s)_{suffix}"]) * GIB)
    [together] = lens("dlrm_8_ranks_nccl", "nccl_summary_implicit_sync")
    sizes = answer_of(ask, "dlrm_8_ranks_nccl")["sizes"]
    assert sum(row["count"] for row in sizes) == int(together["count"]) == 8
    assert sum(row["latency_ns"] for row in sizes) == ns(together["Total comm latency (ms)"]) * 1000


@needs_shared
def test_kernel_sums_equal_tracelens(ask: Ask) -> None:
    for name, traces in (("mi300_resnet_nccl", [real(MI300)]), ("dlrm_8_ranks_nccl", DLRM)):
        expected = lens(name, "nccl_long")
        assert [(row["rank"], row["index"], row["start_ns"], row["duration_ns"], row["stream"]) for row in
                ask("collectives", *traces)["waits"]] == [
            (int(row["rank"]), int(row["index_in_group"]), ns(row["ts"]), ns(row["dur"]), int(row["stream"]))
            for row in expected
        ]  # fmt: skip
    answer = {
        (row["collective"], row["in_elements"]): row
        for row in ask("collectives", real(MI300))["kernels"]
        if row["dtype"]
    }
    rows = lens("mi300_resnet_nccl", "nccl_summary_long")
    assert len(answer) == len(rows)
    for row in rows:
        ours = answer[row["Collective name"], float(row["In msg nelems"])]
        assert ours["count"] == int(row["operation_count"])
        for name, theirs in {"": "sum", "mean_": "mean", "stddev_": "std", "min_": "min", "max_": "max"}.items():
            assert ours[f"{name}duration_ns"] == near(row[f"dur_{theirs}"])


@needs_shared
def test_transfers_equal_tensorboard(ask: Ask) -> None:
    expected = golden("tensorboard", "dlrm_8_ranks_distributed")
    answer = ask("collectives", *DLRM, rules="tensorboard")
    assert {
        f"host_{row['rank']}": [row["transfer_ns"] / 1000, row["synchronizing_ns"] / 1000] for row in answer["steps"]
    } == {
        host: [pytest.approx(time, abs=1) for time in times]
        for host, times in expected["steps_to_wait"]["data"]["10"].items()
    }
    for row in answer["operations"]:
        [[name, calls, size, mean_size, latency, mean_latency, transfer, mean_transfer]] = expected["comm_ops"]["data"][
            f"host_{row['rank']}"
        ]["rows"]
        assert (row["collective"], row["calls"], row["size_bytes"]) == (name, calls, size)
        assert row["size_bytes"] / calls == pytest.approx(mean_size, abs=0.5)
        assert row["latency_ns"] / 1000 == pytest.approx(latency, abs=1)
        assert row["latency_ns"] / 1000 / calls == pytest.approx(mean_latency, abs=1)
        assert row["transfer_ns"] / 1000 == pytest.approx(transfer, abs=1)
        assert row["transfer_ns"] / 1000 / calls == pytest.approx(mean_transfer, abs=1)


@needs_shared
@pytest.mark.parametrize("by", ["wait", "hta"])
def test_stragglers_equal_hta(by: str, ask: Ask) -> None:
    rows = ask("collectives", *DLRM, stragglers=by)["ranks"]
    late = golden("hta_default", "dlrm_8_ranks")["potential_stragglers_2"]
    assert sorted(row["rank"] for row in rows if row["straggler"] == "yes") == late == [2, 7]
    [row] = [
        row for row in ask("collectives", *DLRM, stragglers=by, candidates=1)["ranks"] if row["straggler"] == "yes"
    ]
    assert row["rank"] == 7


def nccl(start: int, end: int, name: str = "ncclDevKernel_AllReduce_Sum", **args: Any) -> dict[str, Any]:
    answer = {"device": 0, "stream": 20, **{key.replace("_", " "): value for key, value in args.items()}}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 20,
        "ts": start / 1000, "dur": (end - start) / 1000, "args": answer,
    }  # fmt: skip


def of_rank(folder: Path, rank: int, events: Sequence[dict[str, Any]], base: int = 0) -> Path:
    text = json.dumps(
        {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": base, "traceEvents": [*events]}, sort_keys=True
    )
    path = folder / f"{abs(hash(text))}.json"
    path.write_text(text)
    return path


times = st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))


@settings(max_examples=scaled(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(times, max_size=4), min_size=2, max_size=3).filter(all), st.booleans())
def test_collectives_equal_a_plain_loop(
    ask: Ask, tmp_path: Path, ranks: list[list[tuple[int, int]]], seq: bool
) -> None:
    """Reversed sequence numbers show that collectives are matched by number and not by position."""
    taking_part: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    traces = []
    for rank, actual in enumerate(ranks):
        ordered = sorted(actual, key=lambda interval: interval[0])
        for index, place in enumerate(ordered):
            taking_part[len(ordered) - index if seq else index][rank] = place
        args: list[dict[str, Any]] = [{"Seq": len(ordered) - index} if seq else {} for index in range(len(ordered))]
        kernels = [nccl(*place, **extra) for place, extra in zip(ordered, args, strict=True)]
        traces.append(of_rank(tmp_path, rank, kernels))
    answer = ask("collectives", *traces)
    rows = {row["seq"] if seq else row["index"]: row for row in answer["collectives"]}
    assert rows.keys() == taking_part.keys()
    for key, intervals in taking_part.items():
        starts, ends = [start for start, _ in intervals.values()], [end for _, end in intervals.values()]
        assert rows[key]["ranks"] == len(intervals)
        assert (rows[key]["start_ns"], rows[key]["end_ns"]) == (min(starts), max(ends))
        assert rows[key]["duration_ns"] == min(end - start for start, end in intervals.values())
        if len(intervals) == 1:
            assert {rows[key][name] for name in UNKNOWN_OF_ONE_RANK["collectives"]} == {None}
            continue
        assert rows[key]["latency_ns"] == rows[key]["duration_ns"]
        assert rows[key]["start_skew_ns"] == max(starts) - min(starts)
        assert rows[key]["end_skew_ns"] == max(ends) - min(ends)
        assert intervals[rows[key]["first_rank"]][0] == min(starts)
        assert intervals[rows[key]["last_rank"]][0] == max(starts)
        assert rows[key]["mean_wait_ns"] == pytest.approx(sum(max(starts) - start for start in starts) / len(starts))
    waits: dict[int, int | None] = dict.fromkeys(range(len(ranks)))
    for intervals in taking_part.values():
        for rank, (start, _) in intervals.items():
            if len(intervals) > 1:
                waits[rank] = (waits[rank] or 0) + max(interval[0] for interval in intervals.values()) - start
    assert {row["rank"]: row["wait_ns"] for row in answer["ranks"]} == waits


def test_bus_bandwidth_follows_the_factor_of_the_collective(ask: Ask, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"In msg nelems": 1000, "Out msg nelems": 4000, "dtype": "Float", "Group size": 4}
    names = [
        "allreduce",
        "_reduce_scatter_base",
        "_allgather_base",
        "all_to_all",
        "all_to_allv",
        "broadcast",
        "barrier",
    ]
    events = [nccl(at * 100, at * 100 + 50, Collective_name=name, **sizes) for at, name in enumerate(names)]
    rows = ask("collectives", of_rank(tmp_path, 0, events))["collectives"]
    assert [row["algorithm_gb_per_s"] for row in rows] == [80, 80, 320, 80, 80, 80, 80]
    assert [row["bus_gb_per_s"] for row in rows] == [120, 60, 240, 60, 60, 80, None]
    synchronizing = ask("collectives", of_rank(tmp_path, 0, events), collectives="synchronizing")["collectives"]
    assert [row["collective"] for row in synchronizing] == names[:4]
    others_only = ask("collectives", of_rank(tmp_path, 0, events[5:]), collectives="synchronizing")
    assert others_only["collectives"] == others_only["waits"] == []
    assert [row["communication_ns"] for row in others_only["ranks"]] == [100]


def step(number: int, start: int, end: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 9, "tid": 9,
        "ts": start / 1000, "dur": (end - start) / 1000,
    }  # fmt: skip


def test_hta_stragglers_start_the_last_long_collective_last(ask: Ask, tmp_path: Path) -> None:
    """Rank 2 is late for the long sends; over all sends, with the short ones that HTA ignores, rank 0 waits least."""
    send = "ncclDevKernel_SendRecv"
    traces = [
        of_rank(
            tmp_path,
            rank,
            [
                step(1, 0, 1000),
                step(2, 1000, 2000),
                *(nccl(base + at, base + 500, send) for base in (0, 1000)),
                *(nccl(base + 500 + late, base + 600) for base in (0, 1000)),
                *(nccl(base + 900 - at, base + 909 - at, send) for base in (0, 1000)),
            ],
        )
        for rank, at, late in ((0, 10, 50), (1, 20, 0), (2, 300, 0))
    ]
    late = {
        row["rank"]: row["straggler"] for row in ask("collectives", *traces, stragglers="hta", candidates=1)["ranks"]
    }
    assert late == {0: "no", 1: "no", 2: "yes"}
    by_wait = ask("collectives", *traces, candidates=1)["ranks"]
    assert [row["rank"] for row in by_wait if row["straggler"] == "yes"] == [0]


def test_tensorboard_rules_assign_kernels_to_annotations_by_external_id(ask: Ask, tmp_path: Path) -> None:
    def annotation(start: int, end: int, ident: int) -> dict[str, Any]:
        args = {"External id": ident, "Input Dims": [[2, 3], [4]], "Input type": ["c10::Half", "long int"]}
        return {**step(0, start, end), "name": "nccl:all_reduce", "args": args}

    first = [annotation(0, 10, 7), annotation(100, 110, 8), nccl(20, 90, External_id=7), nccl(120, 130, External_id=9)]
    second = [annotation(5, 10, 7), annotation(100, 120, 8), nccl(70, 90, External_id=7)]
    answer = ask("collectives", of_rank(tmp_path, 0, first), of_rank(tmp_path, 1, second), rules="tensorboard")
    assert [(row["index"], row["latency_ns"], row["size_bytes"]) for row in answer["collectives"]] == [
        (0, 5, 44), (0, 20, 44), (1, 10, 44)
    ]  # fmt: skip
    assert [(row["rank"], row["calls"], row["size_bytes"], row["latency_ns"], row["transfer_ns"]) for row in
            answer["operations"]] == [(0, 2, 88, 90, 35), (1, 2, 88, 45, 35)]  # fmt: skip


def test_process_groups_are_counted_separately(ask: Ask, tmp_path: Path) -> None:
    def reduction(start: int, group: str) -> dict[str, Any]:
        return nccl(start, start + 10, Process_Group_Name=group, Collective_name="allreduce", dtype="Float")

    first = of_rank(tmp_path, 0, [reduction(0, "tp"), reduction(20, "dp"), reduction(40, "tp")])
    second = of_rank(tmp_path, 1, [reduction(3, "tp"), reduction(45, "tp"), reduction(60, "dp")])
    rows = ask("collectives", first, second)["collectives"]
    actual = [(row["process_group"], row["index"], row["start_ns"], row["start_skew_ns"]) for row in rows]
    assert actual == [("tp", 0, 0, 3), ("dp", 0, 20, 40), ("tp", 1, 40, 5)]


@pytest.mark.parametrize("by", ["kernel", "list"])
def test_groups_that_share_a_name_have_their_own_collectives(by: str, ask: Ask, tmp_path: Path) -> None:
    """The ranks of a group are those that the kernel records or, failing that, those that the trace lists."""
    traces = []
    for rank in range(4):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        recorded: dict[str, Any] = {"Process_Group_Ranks": str(pair)} if by == "kernel" else {}
        of_pair: dict[str, Any] = {
            "Collective_name": "allreduce",
            "Process_Group_Name": "1",
            "Group_size": 2,
            **recorded,
        }
        of_all: dict[str, Any] = {"Collective_name": "allreduce", "Process_Group_Name": "0", "Group_size": 4}
        starts = [1000 * seq + 5000 * (rank // 2) + rank for seq in (1, 2, 3)]
        events = [nccl(start, start + 100, Seq=seq, **of_pair) for seq, start in enumerate(starts, 1)]
        listed = [] if by == "kernel" else [{"pg_name": "1", "ranks": pair}]
        if rank != 2:  # one rank does not list the ranks of the group of all
            listed.append({"pg_name": "0", "ranks": [0, 1, 2, 3]})
        info = {"rank": rank, "pg_config": listed}
        text = json.dumps(
            {"distributedInfo": info, "traceEvents": [*events, nccl(20_000 + rank, 20_200, Seq=1, **of_all)]}
        )
        (tmp_path / f"{rank}.json").write_text(text)
        traces.append(tmp_path / f"{rank}.json")
    rows = ask("collectives", *traces)["collectives"]
    assert [(row["group_ranks"], row["seq"], row["ranks"], row["start_ns"], row["start_skew_ns"]) for row in rows] == [
        *(("[0, 1]", seq, 2, 1000 * seq, 1) for seq in (1, 2, 3)),
        *(("[2, 3]", seq, 2, 1000 * seq + 5002, 1) for seq in (1, 2, 3)),
        ("[0, 1, 2, 3]", 1, 4, 20_000, 3),
    ]


def test_sends_and_receives_have_their_own_sequence_numbers(ask: Ask, tmp_path: Path) -> None:
    group: dict[str, Any] = {"Process_Group_Name": "0", "Group_size": 3, "Seq": 1}
    pair = [nccl(1000 + at, 1100, Collective_name=name, **group) for at, name in enumerate(("send", "recv"))]
    ranks = [
        [*pair[rank : rank + 1], nccl(5000 - 100 * rank, 5100, Collective_name="allreduce", **group)]
        for rank in range(3)
    ]
    answer = ask("collectives", *(of_rank(tmp_path, rank, events) for rank, events in enumerate(ranks)))
    rows = answer["collectives"]
    assert [(row["collective"], row["seq"], row["ranks"], row["start_skew_ns"]) for row in rows] == [
        ("send", 1, 2, 1), ("allreduce", 1, 3, 200)
    ]  # fmt: skip
    assert rows[1]["consistent"] == "yes"
    assert {row["rank"]: row["complete"] for row in answer["ranks"]} == {0: 2, 1: 2, 2: 1}


def test_clocks_with_different_bases_are_aligned(ask: Ask, tmp_path: Path) -> None:
    first = of_rank(tmp_path, 0, [nccl(100, 200)], base=1_000_000)
    second = of_rank(tmp_path, 1, [nccl(50, 90)], base=1_000_060)
    [row] = ask("collectives", first, second)["collectives"]
    assert (row["start_ns"], row["end_ns"], row["start_skew_ns"], row["last_rank"]) == (100, 200, 10, 1)


@pytest.mark.parametrize(("ahead", "name"), [(0, "allreduce"), (400, "allreduce"), (400, "broadcast")])
def test_note_says_that_clocks_differ_where_a_wait_is_impossible(
    ask: Ask, tmp_path: Path, ahead: int, name: str
) -> None:
    """The all-reduce of 100 ns ends on both ranks at once; the root of a broadcast may be done before others start."""
    traces = [
        of_rank(tmp_path, rank, [nccl(1000 + shift, 1100 + shift, Collective_name=name, Process_Group_Name="0", Seq=1)])
        for rank, shift in enumerate((0, ahead))
    ]
    notes = ask("collectives", *traces).answer.notes
    assert len(notes) == (ahead > 0 and name == "allreduce")
    assert all("in one of its collectives, rank 0 would wait" in note for note in notes)


def test_ranks_that_contradict_each_other_are_inconsistent(ask: Ask, tmp_path: Path) -> None:
    first = of_rank(tmp_path, 0, [nccl(0, 10, Collective_name="allreduce", dtype="Float")])
    second = of_rank(tmp_path, 1, [nccl(0, 10, Collective_name="allgather", dtype="Float")])
    [row] = ask("collectives", first, second)["collectives"]
    assert row["consistent"] == "no"


def test_gloo_collectives_run_on_the_host(ask: Ask) -> None:
    answer = ask("collectives", *(DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in range(2)))
    assert {(row["collective"], row["ranks"], row["consistent"]) for row in answer["collectives"]} == {
        ("gloo:all_reduce", 2, "yes")
    }
    assert all(row["size_bytes"] is None and row["latency_ns"] > 0 for row in answer["collectives"])
    assert {row["rank"] for row in answer["ranks"]} == {0, 1}


@needs_shared
def test_host_collective_size_is_that_of_its_inputs(ask: Ask) -> None:
    rows = ask("collectives", real("gloo_cpu_rank34_of_300"))["operations"]
    assert [(row["collective"], row["calls"], row["size_bytes"]) for row in rows] == [
        ("gloo:all_reduce", 10, 5 * 4 * (321_271 + 2_082_411))
    ]


def test_single_rank_has_unknown_waits(ask: Ask) -> None:
    answer = ask("collectives", [nccl(0, 10), nccl(20, 40)])
    [row] = answer["ranks"]
    assert (row["straggler"], row["wait_ns"], row["communication_ns"]) == (None, None, 30)
    assert "one rank of an unknown number" in answer["collectives"][0]["note"]


def test_group_of_one_rank_does_not_wait(ask: Ask) -> None:
    answer = ask("collectives", [nccl(0, 10, Group_size=1, Collective_name="allreduce")])
    [row] = answer["ranks"]
    assert (row["straggler"], row["wait_ns"], row["times_last"], row["note"]) == ("no", 0, 0, None)
    [row] = answer["collectives"]
    assert (row["latency_ns"], row["last_rank"], row["start_skew_ns"]) == (10, None, 0)


def test_incomplete_group_has_unknown_waits(ask: Ask, tmp_path: Path) -> None:
    """A send or receive has two ranks, even in a larger group."""
    names = {"allreduce": 4, "send": 4, "barrier": 2}
    ranks = [
        [nccl(100 * at + rank, 100 * at + 50, Collective_name=name, Group_size=size, Process_Group_Name=name)
         for at, (name, size) in enumerate(names.items())]
        for rank in range(2)
    ]  # fmt: skip
    answer = ask("collectives", *(of_rank(tmp_path, rank, events) for rank, events in enumerate(ranks)))
    assert {row["collective"]: (row["latency_ns"], row["last_rank"]) for row in answer["collectives"]} == {
        "allreduce": (None, None), "send": (49, 1), "barrier": (49, 1)
    }  # fmt: skip
    assert {row["rank"]: (row["complete"], row["wait_ns"], row["times_last"]) for row in answer["ranks"]} == {
        0: (2, 2, 0), 1: (2, 0, 2)
    }  # fmt: skip


# -- metadata of collectives -----------------------------------------------------------------------------------------


def on_host(name: str, start: int, end: int, cat: str = "cpu_op", tid: int = 5, **args: Any) -> dict[str, Any]:
    args = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": start / 1000, "dur": (end - start) / 1000,
        "args": args,
    }  # fmt: skip


def called(start: int, correlation: int, end: int | None = None, tid: int = 5) -> dict[str, Any]:
    end = start + 5 if end is None else end
    return on_host("cudaLaunchKernel", start, end, "cuda_runtime", tid, correlation=correlation)


def recorded(start: int, end: int, elements: int, tid: int = 5) -> dict[str, Any]:
    return on_host(
        "record_param_comms", start, end, tid=tid, Collective_name="_allgather_base", In_msg_nelems=elements,
        Out_msg_nelems=4 * elements, dtype="BFloat16", Group_size=4, Process_Group_Name="3", Seq=elements,
        Process_Group_Description="tensor parallel", Process_Group_Ranks="[0, 2, 4, 6]",
    )  # fmt: skip


def test_host_events_around_the_launch_describe_a_kernel_without_metadata(ask: Ask) -> None:
    """The innermost host event on the launching thread describes the kernel, unless the kernel has its own metadata."""
    annotation = {"Input Dims": [[3, 5], []], "Input type": ["c10::Half", ""]}
    rows = ask(
        "collectives",
        [
            recorded(0, 100, 7), recorded(10, 90, 8), recorded(20, 80, 9, tid=6), called(30, 1),
            nccl(200, 210, correlation=1),
            {**on_host("nccl:_all_gather_base", 110, 150, "user_annotation"), "args": annotation}, called(120, 2),
            nccl(220, 230, correlation=2),
            recorded(160, 190, 11), called(170, 3),
            nccl(240, 250, correlation=3, Collective_name="broadcast", dtype="Float", In_msg_nelems=1),
            nccl(260, 270, "ncclDevKernel_ReduceScatter", correlation=4),
        ],
    )["waits"]  # fmt: skip
    names = ("source", "collective", "dtype", "in_elements", "size_bytes", "group_size", "process_group", "launch_ns")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("launch", "_allgather_base", "BFloat16", 8, 64, 4, "3", 30),
        ("annotation", "_all_gather_base", "c10::Half", 15, None, None, None, 120),
        ("kernel", "broadcast", "Float", 1, 4, None, None, 170),
        ("name", "reduce_scatter", None, None, None, None, None, None),
    ]
    assert rows[0]["group_description"] == "tensor parallel"
    assert rows[0]["seq"] == 8


def test_group_sizes_come_from_the_groups_of_the_trace(ask: Ask, tmp_path: Path) -> None:
    """An unnamed group has the size on which all listed groups agree, or that of the job if no groups are listed."""

    def sizes(name: str, *listed: int, events: Sequence[dict[str, Any]]) -> list[Any]:
        groups = [{"pg_name": str(at), "pg_desc": f"group {at}", "pg_size": size} for at, size in enumerate(listed)]
        info = {"rank": 0, "world_size": 8, **({"pg_config": groups} if groups else {})}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"distributedInfo": info, "traceEvents": [*events]}))
        rows = ask("collectives", path)["collectives"]
        return [(row["group_size"], row["group_description"], "of the job" in row["note"]) for row in rows]

    without_group, in_group = nccl(0, 10), nccl(20, 30, Process_Group_Name="1", Collective_name="allreduce")
    assert sizes("alike", 4, 4, events=[without_group, in_group]) == [(4, None, False), (4, "group 1", False)]
    assert sizes("different", 4, 2, events=[without_group, in_group]) == [(None, None, False), (2, "group 1", False)]
    assert sizes("none listed", events=[without_group]) == [(8, None, True)]
    assert sizes("none listed but told", events=[without_group, in_group]) == [(None, None, False)] * 2


def test_names_of_groups_are_without_escapes(ask: Ask) -> None:
    """The trace lists the group under the same name. An escape that stands for no character stays as it is."""
    name = 'g\u00e9/"x"'
    groups = [{"pg_name": name, "pg_size": 2, "pg_desc": "escaped"}]
    events = [nccl(0, 10, Process_Group_Name=name, Collective_name="allreduce", dtype="\ud800")]
    document = json.dumps({"distributedInfo": {"rank": 0, "pg_config": groups}, "traceEvents": events})
    assert "g\\u00e9" in document
    [row] = ask("collectives", document)["collectives"]
    assert (row["process_group"], row["group_size"], row["group_description"]) == (name, 2, "escaped")
    assert row["dtype"] == "\\ud800"


def test_all_gather_size_is_that_of_its_output(ask: Ask) -> None:
    dims = {"Input Dims": [[3, 5]], "Input type": ["float"]}
    events = [
        {**on_host("nccl:_all_gather_base", 0, 20, "user_annotation"), "args": dims},
        called(5, 1),
        nccl(30, 40, correlation=1),
    ]
    group = {"pg_name": "0", "pg_size": 4}
    document = {"distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [group]}, "traceEvents": events}
    [row] = ask("collectives", json.dumps(document))["collectives"]
    assert (row["size_bytes"], row["algorithm_gb_per_s"], row["bus_gb_per_s"]) == (240, 24, 18)


# -- causes of late ranks ---------------------------------------------------------------------------------------------

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda pair: (pair[0], sum(pair))), max_size=4)


@settings(max_examples=scaled(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    covers=st.tuples(spans, spans, spans, spans),
    launch=st.none() | st.integers(0, 100), start=st.integers(2, 100), begins=st.integers(0, 40),
)  # fmt: skip
def test_each_nanosecond_of_a_late_start_has_exactly_one_cause(
    ask: Ask, tmp_path: Path, covers: Any, launch: int | None, start: int, begins: int
) -> None:  # fmt: skip
    """Rank 0 starts at 0, and rank 1 at `start`."""
    loads, synchronizes, computes, communicates = covers
    args: dict[str, Any] = {"Seq": 999, "Collective name": "allreduce"}
    loader = "enumerate(DataLoader)#X.__next__"
    own = [on_host(loader, span[0], span[1], tid=6) for span in loads if span[0] >= begins]
    own += [
        on_host("cudaStreamSynchronize", span[0], span[1], "cuda_runtime", tid=7)
        for span in synchronizes
        if span[0] >= begins
    ]
    own += [on_host("aten::add", begins, begins + 1, tid=8)]
    if launch is not None and launch >= begins:
        own.append(called(launch, 5))
    own += [{**nccl(span[0], span[1], "gemm"), "tid": 30} for span in computes]
    own += [
        nccl(span[0], span[1], Seq=at, Collective_name="send", Group_size=9) for at, span in enumerate(communicates)
    ]
    own.append(nccl(start, start + 200, correlation=5, **args))
    early = [nccl(0, start + 200, **args)]
    answer = ask("collectives", of_rank(tmp_path, 0, early), of_rank(tmp_path, 1, own))

    def inside(intervals: list[tuple[int, int]], at: int) -> bool:
        return any(first <= at < last for first, last in intervals)

    expected: dict[str, int] = defaultdict(int)
    for at in range(start):
        if launch is None or launch < begins:
            cause = "unknown"
        elif at < launch:
            of_host = [("data loading", loads), ("synchronizing", synchronizes)]
            causes = [(name, [span for span in spans if span[0] >= begins]) for name, spans in of_host]
            cause = (
                "before the trace"
                if at < begins
                else next((name for name, spans in causes if inside(spans, at)), "host")
            )
        else:
            causes = [("compute", computes), ("communication", communicates)]
            cause = next((name for name, spans in causes if inside(spans, at)), "launch delay")
        expected[cause] += 1
    assert {row["cause"]: row["late_ns"] for row in answer["lateness"] if row["rank"] == 1} == expected
    [late] = [row for row in answer["ranks"] if row["rank"] == 1]
    assert (late["late_ns"], late["times_last"], late["straggler"]) == (start, 1, "yes")
    [row] = [row for row in answer["waits"] if row["rank"] == 1 and row["seq"] == 999]
    assert expected[row["late_cause"]] == max(expected.values())
    if launch is not None and launch >= begins:
        assert row["late_at_launch_ns"] == min(launch, start)
    else:
        assert row["late_at_launch_ns"] is None


def test_trace_without_communication_is_not_applicable(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No NCCL kernels are in this trace"):
        ask("collectives", DATA / "cpu_train_steps.pt.trace.json.gz")


@pytest.mark.system
def test_64_ranks_are_answered(ask: Ask, tmp_path: Path) -> None:
    kernels = [nccl(at * 100, at * 100 + 50, Seq=at, Process_Group_Name=str(at % 3)) for at in range(200)]
    answer = ask("collectives", *(of_rank(tmp_path, rank, kernels) for rank in range(64)))
    assert len(answer["collectives"]) == 200
    assert all(row["ranks"] == 64 and row["latency_ns"] == 50 for row in answer["collectives"])
    assert len(answer["ranks"]) == 64

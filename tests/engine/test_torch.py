"""The SQL package `torch` agrees with an oracle in plain Python, on real and on generated traces."""

import json
import math
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from tests import brute
from tests.conftest import DATA, SHARED, needs_shared
from tests.cutting.test_cut import cut_text, ingested, plain
from tests.engine.torch_oracle import WORK, Oracle, by_number, engine_on, read
from tests.traces import TraceShape, trace_chunks

DATA_NAMES = [  # traces in tests/data
    "cpu_train_steps.pt.trace.json.gz",
    "cpu_stack_memory.pt.trace.json.gz",
    "cpu_gloo_rank0_of_2.pt.trace.json.gz",
]
SHARED_NAMES = [  # traces in the shared folder
    "a100_nccl_3_steps.pt.trace.json.gz",
    "b200_eager_rank0_of_8.pt.trace.json.gz",
    "dlrm_8_ranks/worker0_step_12.1694128201545.pt.trace.json.gz",
    "gloo_cpu_rank34_of_300.pt.trace.json.gz",
    "h100_bert_small.pt.trace.json.gz",
    "h100_timesformer.pt.trace.json.gz",
    "mi300_resnet_rank0_of_8.pt.trace.json.gz",
    "v100_ddp_epoch_us.pt.trace.json.gz",
    "v100_resnet50_2021.pt.trace.json.gz",
    "vllm_cuda_graphs.pt.trace.json.gz",
]
QUICK = ("a100", "mi300", "v100_resnet50_2021")  # starts of the names of shared traces that are tested quickly

OP_COLUMNS = (  # all columns except for the shapes
    "id, name, ts, dur, self_dur, parent_id, rank, step, external_id, sequence_number, kernel_count, kernel_dur"
)


def generated(**shape: Any) -> Any:
    return json.loads(b"".join(trace_chunks(TraceShape(**shape))))


def params() -> list[Any]:
    """Return the traces to test; most of the shared ones are slow tests."""
    shared = [
        pytest.param(name, marks=[needs_shared] if name.startswith(QUICK) else [needs_shared, pytest.mark.slow])
        for name in SHARED_NAMES
    ]
    return ["generated", *DATA_NAMES, *shared]


@pytest.fixture(scope="module", params=params(), ids=lambda name: name.partition(".")[0])
def oracle(request: pytest.FixtureRequest) -> Oracle:
    """The oracle of each trace."""
    if request.param == "generated":
        return Oracle([generated(steps=3)], [None])
    return Oracle([read(DATA / request.param if request.param in DATA_NAMES else SHARED / request.param)], [0])


async def test_kernels_have_their_launch_op_and_step(engine: Path, oracle: Oracle) -> None:
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.kernels; SELECT * FROM torch_kernel")
        rows_by_number = by_number(rows, await sql.numbers(), "launch_id", "op_id")
    assert len(rows_by_number) == len(rows) == len(oracle.work)
    for slice_ in oracle.work:
        row, launch, op = rows_by_number[slice_.number], oracle.launch(slice_), oracle.op(slice_)
        assert (row["name"], row["ts"], row["dur"]) == (slice_.name, slice_.ts, slice_.dur)
        assert row["category"] == WORK[slice_.category or ""]
        assert (row["rank"], row["device"], row["correlation"]) == (
            slice_.rank,
            slice_.args.get("device", oracle.devices[slice_.track]),
            slice_.args.get("correlation"),
        )
        assert row["stream"] == slice_.args.get("stream", row["stream"])
        assert (row["bytes"], row["graph_node_id"]) == (slice_.args.get("bytes"), slice_.args.get("graph node id"))
        assert row["launch_id"] == (launch and launch.number)
        assert (row["launch_ts"], row["launch_dur"]) == ((launch.ts, launch.dur) if launch else (None, None))
        assert row["delay"] == (max(0, slice_.ts - launch.end) if launch else None)
        assert (row["op_id"], row["op_name"]) == ((op.number, op.name) if op else (None, None))
        assert row["rule"] == oracle.rule(slice_)
        assert row["external_id"] == (slice_.external_id or (launch and launch.external_id))
        assert row["step"] == oracle.step_at(launch.ts if launch else slice_.ts, slice_.rank)


async def test_ops_have_the_self_time_of_key_averages_and_their_kernels(engine: Path, oracle: Oracle) -> None:
    self_dur, launched = oracle.self_dur(), defaultdict(list)
    for slice_ in oracle.work:
        if op := oracle.op(slice_):
            launched[op.number].append(slice_.dur)
    async with engine_on(engine, oracle) as sql:
        rows = await sql(f"INCLUDE PERFETTO MODULE torch.ops; SELECT {OP_COLUMNS} FROM torch_op")
        rows_by_number = by_number(rows, await sql.numbers(), "parent_id")
    assert rows_by_number.keys() == self_dur.keys()
    for slice_ in oracle.ops:
        row = rows_by_number[slice_.number]
        assert (row["name"], row["ts"], row["dur"], row["rank"]) == (slice_.name, slice_.ts, slice_.dur, slice_.rank)
        assert row["self_dur"] == self_dur[slice_.number]
        if slice_.dur:  # the parent of a slice without a duration may be another such slice
            assert row["parent_id"] == (slice_.parent and slice_.parent.number)
        assert (row["kernel_count"], row["kernel_dur"]) == (len(launched[slice_.number]), sum(launched[slice_.number]))
        assert (row["external_id"], row["sequence_number"]) == (slice_.external_id, slice_.args.get("Sequence number"))
        assert row["step"] == oracle.step_at(slice_.ts, slice_.rank)


async def test_ops_of_the_backward_pass_have_their_forward_op(engine: Path, oracle: Oracle) -> None:
    forward, backward = defaultdict(list), []
    for slice_ in oracle.ops:
        sequence_number = slice_.args.get("Sequence number")
        key = slice_.rank, sequence_number
        if slice_.args.get("Fwd thread id", 0) > 0:
            backward.append((slice_, key))
        elif sequence_number is not None:
            forward[key].append(slice_)
    expected = {  # the last forward op with the number, if all of them are on one thread
        slice_.number: forward[key][-1].number
        for slice_, key in backward
        if len({op.track for op in forward[key]}) == 1 and forward[key][-1].number < slice_.number
    }
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.backward; SELECT id, forward_id FROM torch_backward")
        rows_by_number = by_number(rows, await sql.numbers(), "forward_id")
    assert {number: row["forward_id"] for number, row in rows_by_number.items()} == expected


async def test_step_tables_have_the_steps_of_the_host_and_of_the_gpu(engine: Path, oracle: Oracle) -> None:
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.steps; SELECT * FROM torch_step ORDER BY ts")
        gpu_rows = await sql("SELECT * FROM torch_gpu_step ORDER BY ts, id")
    assert [(row["step"], row["name"], row["ts"], row["dur"], row["rank"]) for row in rows] == [
        (slice_.step, slice_.name, slice_.ts, slice_.dur, slice_.rank) for slice_ in oracle.steps
    ]
    gpu_steps = [slice_ for slice_ in oracle.slices if slice_.step is not None and slice_.track in oracle.devices]
    assert [(row["step"], row["ts"], row["dur"], row["device"]) for row in gpu_rows] == [
        (slice_.step, slice_.ts, slice_.dur, oracle.devices[slice_.track]) for slice_ in gpu_steps
    ]


async def test_memory_table_has_the_values_of_the_events(engine: Path, oracle: Oracle) -> None:
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.memory; SELECT * FROM torch_memory")
    keys = {
        "bytes": "Bytes", "total_allocated": "Total Allocated", "total_reserved": "Total Reserved",
        "device_type": "Device Type", "device_id": "Device Id", "addr": "Addr",
    }  # fmt: skip
    assert Counter((row["ts"], *(row[key] for key in keys)) for row in rows) == Counter(
        (slice_.ts, *(slice_.args.get(key) for key in keys.values()))
        for slice_ in oracle.slices
        if slice_.name == "[memory]"
    )


async def test_collectives_have_the_facts_of_the_kernel_or_of_slices_around_its_launch(
    engine: Path, oracle: Oracle
) -> None:
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.collectives; SELECT * FROM torch_collective")
        rows_by_number = by_number(rows, await sql.numbers())
    families = ("nccl", "rccl", "multimem_all_reduce_kernel")
    kernels = [
        slice_
        for slice_ in oracle.work
        if WORK[slice_.category or ""] == "kernel"
        and (any(family in slice_.name.lower() for family in families) or "Collective name" in slice_.args)
    ]
    on_host = [slice_ for slice_ in oracle.host if slice_.name.startswith("gloo:")]
    assert sorted(rows_by_number) == sorted(slice_.number for slice_ in kernels + on_host)
    is_size_assumed = {rank: assumed for rank, name, *_, assumed in oracle.groups if name is None}
    are_sizes_recorded = any("Group size" in slice_.args for slice_ in oracle.slices)
    for slice_ in kernels + on_host:
        launch = oracle.launch(slice_) if slice_ in kernels else slice_
        sources = [slice_, *([launch, *launch.around()] if launch else [])]
        args = next((source.args for source in sources if "Collective name" in source.args), None)
        annotation = next((source for source in sources if re.match("(nccl|gloo):|symm_mem::", source.name)), None)
        group = (args or {}).get("Process Group Name", (args or {}).get("Process Group ID"))
        row = rows_by_number[slice_.number]
        assert (row["ts"], row["dur"], row["name"]) == (slice_.ts, slice_.dur, slice_.name)
        if args is None and annotation:
            elements, dtype = elements_of(annotation.args)
            assert row["collective"] == re.split("::?", annotation.name)[1]
            assert (row["dtype"], row["in_nelems"]) == (dtype, elements)
            factor = row["group_size"] if "gather" in annotation.name else 1
            assert row["size_bytes"] == (
                ELEMENT_BYTES[dtype] * elements * factor if dtype and elements and factor else None
            )
        args = args or {}
        if args:
            assert (row["collective"], row["dtype"]) == (args["Collective name"], args["dtype"])
            assert row["in_nelems"] == args["In msg nelems"]
            counted_nelems = args["Out msg nelems" if "gather" in args["Collective name"] else "In msg nelems"]
            assert row["size_bytes"] == counted_nelems * ELEMENT_BYTES[args["dtype"]]
        group_name = None if group is None else str(group)
        group_sizes = {name: size for rank, name, size, *_ in oracle.groups if rank == row["rank"]}
        group_size = group_sizes.get(group_name)
        if group is None and is_size_assumed[row["rank"]] and are_sizes_recorded:
            group_size = None
        assert row["group_size"] == args.get("Group size", group_size)
        assert row["out_nelems"] == args.get("Out msg nelems")
        assert row["group_name"] == group_name
        if "Process Group Ranks" in args:
            assert row["group_ranks"] == args["Process Group Ranks"]
        assert row["seq"] == args.get("Seq")


ELEMENT_BYTES = {
    "float": 4, "int": 4, "long int": 8, "c10::BFloat16": 2, "Float": 4, "Long": 8, "BFloat16": 2, "Int": 4,
}  # fmt: skip


def elements_of(args: Any) -> tuple[int | None, str | None]:
    """Return the number of elements of an annotation's input tensors, and the type of the first."""
    pairs = zip(args.get("Input Dims", []), args.get("Input type", []), strict=True)
    tensors = [(math.prod(dims), dtype) for dims, dtype in pairs if dims and dtype in ELEMENT_BYTES]
    return (sum(count for count, _ in tensors), tensors[0][1]) if tensors else (None, None)


@needs_shared
@pytest.mark.parametrize(
    "name", ["dlrm_8_ranks/worker3_step_12.1694128201557.pt.trace.json.gz", *SHARED_NAMES[:2], SHARED_NAMES[6]]
)
async def test_collectives_agree_with_the_analysis(engine: Path, name: str, tmp_path: Path) -> None:
    oracle = Oracle([read(SHARED / name)], [0])
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.collectives; SELECT * FROM torch_collective ORDER BY ts, id")
    columns = ("dtype", "in_nelems", "out_nelems", "size_bytes", "group_name", "group_description", "seq")
    source = ingested((SHARED / name).read_bytes(), tmp_path / "trace", name)
    question = question_of("collectives")
    inputs = [AnalysisInput(source.columns, source.summary, None, name)]
    tables = answer_question(question, parameters_of(question, {}), inputs, ReadingCache(tmp_path / "spill")).tables
    waits = tables["waits"].to_pylist()
    assert len(waits) == len(rows) > 0
    for row, wait in zip(rows, waits, strict=True):
        expected = {**wait, "group_name": wait["process_group"], "in_nelems": wait["in_elements"]}
        expected["out_nelems"] = wait["out_elements"]
        assert (row["ts"] + oracle.base_ns, row["dur"]) == (wait["start_ns"], wait["duration_ns"])
        assert {key: row[key] for key in columns} == {key: expected[key] for key in columns}
        if wait["source"] != "name":
            assert row["collective"] == wait["collective"]


async def ops_of(engine: Path, oracle: Oracle) -> dict[int, dict[str, Any]]:
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.ops; SELECT * FROM torch_op")
        return by_number(rows, await sql.numbers(), "parent_id")


def tangled(seed: int) -> Any:
    """Return events of threads on which most slices overlap."""
    draw = random.Random(seed)
    categories = [*["cpu_op"] * 6, "user_annotation", "python_function", "cuda_runtime", "overhead"]
    return [
        {
            "ph": "X", "pid": 1, "tid": tid, "ts": draw.randrange(300), "dur": draw.choice([1, 2, 5, 20, 60, 200]),
            "cat": draw.choice(categories), "name": draw.choice(["aten::a", "aten::b", "aten::is_leaf"]),
        }
        for tid in range(1, 9)
        for _ in range(60)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
async def test_self_time_and_parents_are_correct_across_lanes(engine: Path, seed: int) -> None:
    oracle = Oracle([tangled(seed)], [None])
    assert max(slice_.lane for slice_ in oracle.slices) > 5
    rows_by_number, self_dur = await ops_of(engine, oracle), oracle.self_dur()
    assert {number: row["self_dur"] for number, row in rows_by_number.items()} == self_dur
    assert {number: row["parent_id"] for number, row in rows_by_number.items()} == {
        slice_.number: slice_.parent and slice_.parent.number for slice_ in oracle.ops
    }


@needs_shared
@pytest.mark.parametrize("name", ["plain", "sched_stack_modules", "shapes_mem_flops", "threads"])
async def test_self_time_by_name_agrees_with_torch(engine: Path, name: str) -> None:
    golden = json.loads((SHARED / "golden" / "key_averages" / f"{name}.json").read_text())
    oracle = Oracle([read(SHARED / "torch213_cpu" / f"{name}.pt.trace.json")], [None])
    self_ns: Counter[str] = Counter()
    for row in (await ops_of(engine, oracle)).values():
        self_ns[row["name"]] += row["self_dur"]
    torch_self_ns = {row["key"]: round(row["self_cpu"] * 1000) for row in golden["by_name"] if row["key"] in self_ns}
    assert self_ns == torch_self_ns


async def test_ranks_with_equal_ids_are_kept_apart(engine: Path) -> None:
    document = generated(steps=2)
    oracle = Oracle([document, document], [3, 5])
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.kernels; SELECT * FROM torch_kernel")
        rows_by_number = by_number(rows, await sql.numbers(), "launch_id", "op_id")
        steps = await sql("SELECT rank, count(*) AS steps FROM torch_step GROUP BY rank ORDER BY rank")
    assert steps == [{"rank": 3, "steps": 2}, {"rank": 5, "steps": 2}]
    slices_by_number = {slice_.number: slice_ for slice_ in oracle.slices}
    launched = [row for row in rows_by_number.values() if row["launch_id"] is not None]
    assert {row["rank"] for row in launched} == {3, 5}
    for row in launched:
        launch, op = slices_by_number[row["launch_id"]], slices_by_number[row["op_id"]]
        assert launch.rank == op.rank == row["rank"]


async def test_tables_of_a_trace_without_arguments_lack_only_values_from_arguments(engine: Path) -> None:
    oracle = Oracle([generated(steps=2)], [0], keep_args=False)
    async with engine_on(engine, oracle) as sql:
        [kernels] = await sql("""
            INCLUDE PERFETTO MODULE torch.*;
            SELECT count(*) AS work, count(step) AS in_steps, count(stream) AS on_streams,
                count(correlation) AS correlated, count(launch_id) AS launched, count(op_id) AS by_ops
            FROM torch_kernel""")
        [ops] = await sql(
            "SELECT count(*) AS ops, sum(self_dur) AS self_dur, count(external_id) AS identified FROM torch_op"
        )
    work = len(oracle.work)
    assert kernels["work"] == kernels["on_streams"] == work
    assert kernels["in_steps"] == sum(oracle.step_at(slice_.ts, 0) is not None for slice_ in oracle.work) > 0
    assert (kernels["correlated"], kernels["launched"], kernels["by_ops"]) == (0, 0, 0)
    assert ops == {"ops": len(oracle.ops), "self_dur": sum(oracle.self_dur().values()), "identified": 0}


def step(number: int, tid: int, ts: int, dur: int) -> Any:
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


async def test_slices_of_one_step_share_a_row_only_if_they_overlap(engine: Path) -> None:
    oracle = Oracle([[step(1, 1, 0, 10), step(1, 2, 5, 10), step(2, 1, 15, 5), step(1, 2, 30, 4)]], [None])
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.steps; SELECT step, ts, dur FROM torch_step")
        [steps] = await sql(
            "SELECT torch_step_at(12000, NULL) AS inside, torch_step_at(25000, NULL) AS between_steps,"
            " torch_step_at(0, 7) AS of_another_rank"
        )
    assert [tuple(row.values()) for row in rows] == [(1, 0, 15_000), (2, 15_000, 5_000), (1, 30_000, 4_000)]
    assert steps == {"inside": 1, "between_steps": None, "of_another_rank": None}


async def test_steps_on_a_gpu_without_work_are_none_of_the_host(engine: Path) -> None:
    """A cut of a trace may keep the annotations of a stream without its work: then its device is not known."""
    on_gpu = step(3, 7, 15, 20) | {"cat": "gpu_user_annotation", "pid": 0}
    oracle = Oracle([{"traceEvents": [step(3, 1, 10, 20), on_gpu]}], [None])
    oracle.devices.clear()
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.steps; SELECT step, ts, dur FROM torch_step")
        gpu_rows = await sql("SELECT step, ts, dur, device, stream FROM torch_gpu_step")
    assert [tuple(row.values()) for row in rows] == [(3, 0, 20_000)]
    assert [tuple(row.values()) for row in gpu_rows] == [(3, 5_000, 20_000, None, None)]


@pytest.mark.parametrize("selection", [{"streams": ["0/7"]}, {"categories": ["kernel"]}])
async def test_work_of_a_cut_has_the_steps_of_the_trace(engine: Path, tmp_path: Path, selection: Any) -> None:
    path = DATA / "cuda_graph_replays.pt.trace.json.gz"
    source, whole = ingested(path.read_bytes(), tmp_path / "whole", path.name), brute.Document(plain(path))
    async with engine_on(engine, Oracle([json.loads(cut_text(source, selection))], [None])) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.kernels; SELECT name, step FROM torch_kernel")
    kept = {*brute.kept(whole, selection)}
    work = [event for event in whole.attributed.work if event.index in kept]
    assert Counter((row["name"], row["step"]) for row in rows) == Counter(
        (event.name, whole.attributed.step(event)) for event in work
    )
    assert {row["step"] for row in rows} >= {step["number"] for step in source.summary.steps}


async def test_time_is_converted_to_the_clock_of_the_trace(engine: Path) -> None:
    oracle = Oracle([read(DATA / DATA_NAMES[0])], [None])
    async with engine_on(engine, oracle) as sql:
        rows = await sql("""
            INCLUDE PERFETTO MODULE torch.trace;
            SELECT torch_base_ns() AS base, torch_ns(ts) AS ns FROM slice ORDER BY ts LIMIT 1""")
    assert rows == [{"base": oracle.base_ns, "ns": oracle.base_ns}]


async def test_tracks_have_their_thread_stream_and_lane(engine: Path) -> None:
    oracle = Oracle([tangled(0)], [4])
    async with engine_on(engine, oracle) as sql:
        rows = await sql("INCLUDE PERFETTO MODULE torch.trace; SELECT * FROM torch_track")
    assert {(row["pid"], row["tid"], row["rank"], row["lane"]) for row in rows} == {
        (*slice_.track, slice_.lane) for slice_ in oracle.slices
    }
    assert {row["thread_name"] for row in rows} == {f"thread {number}" for number in range(1, 9)}


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        ([[64, 3, 7, 7], [64], []], ["float", "float", ""]),
        ([[], [2], []], ["", "float", "Scalar"]),
        ([[[2], [3, 4]], []], ["TensorList", ""]),
        ([[1]] * 12, ["float"] * 12),
        ([[list(range(1, 13))]], ["TensorList"]),
    ],
)
async def test_input_dims_are_as_recorded(engine: Path, dims: list[Any], types: list[str]) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::cat", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    oracle = Oracle([[event | {"args": {"Input Dims": dims, "Input type": types}}]], [None])
    [row] = (await ops_of(engine, oracle)).values()
    assert json.loads(row["input_dims"]) == dims


async def test_input_dims_of_real_ops_are_as_recorded(engine: Path) -> None:
    oracle = Oracle([read(DATA / DATA_NAMES[0])], [None])
    rows_by_number = await ops_of(engine, oracle)
    recorded = {slice_.number: slice_.args["Input Dims"] for slice_ in oracle.ops if slice_.args.get("Input Dims")}
    assert len(recorded) > 100
    assert {number: json.loads(rows_by_number[number]["input_dims"]) for number in recorded} == recorded


async def test_modules_can_be_included_repeatedly_in_any_order(engine: Path) -> None:
    oracle = Oracle([generated(steps=1)], [None])
    modules = ["ops", "collectives", "memory", "kernels", "steps", "trace", "ops"]
    async with engine_on(engine, oracle) as sql:
        for module in modules:
            await sql(f"INCLUDE PERFETTO MODULE torch.{module}")
        assert await sql("SELECT count(*) AS n FROM torch_kernel") == [{"n": len(oracle.work)}]


async def test_arguments_of_the_wrong_type_are_ignored(engine: Path) -> None:
    wrong_args = {
        "correlation": "x", "External id": "y", "bytes": [1], "Sequence number": 0.5, "Bytes": {"a": 1}, "Addr": "z",
        "Collective name": 7, "dtype": 8.5, "Group size": "two", "Seq": None, "Process Group Name": True,
    }  # fmt: skip
    document = generated(steps=1)
    for number, event in enumerate(document["traceEvents"]):
        if event["ph"] == "X" and number % 3 == 0:
            event["args"] = wrong_args
    oracle = Oracle([document], [None])
    async with engine_on(engine, oracle) as sql:
        [row] = await sql("INCLUDE PERFETTO MODULE torch.*; SELECT count(*) AS n FROM torch_kernel")
        assert await sql("SELECT * FROM torch_op")
        assert await sql("SELECT * FROM torch_collective")
    assert row == {"n": len(oracle.work)}


async def test_trace_without_work_has_empty_tables(engine: Path) -> None:
    oracle = Oracle([[{"ph": "X", "cat": "Trace", "name": "all", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]], [None])
    async with engine_on(engine, oracle) as sql:
        await sql("INCLUDE PERFETTO MODULE torch.*")
        for name in ("step", "gpu_step", "kernel", "op", "collective", "memory"):
            assert await sql(f"SELECT * FROM torch_{name}") == []

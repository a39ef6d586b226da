"""SQL, analyses, splits and plain Python agree on the work of each step and operator."""

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.brute import Document
from tests.conftest import DATA, SHARED, needs_shared
from tests.http.test_derived_traces import created_traces, split
from tests.server import Server
from tests.traces import TraceShape, write_trace

OURS = ["cpu_train_steps.pt.trace.json.gz", "made.json"]
THEIRS = [
    "a100_nccl_3_steps.pt.trace.json.gz",
    "b200_eager_rank0_of_8.pt.trace.json.gz",
    "dlrm_8_ranks/worker1_step_12.1694128201556.pt.trace.json.gz",
    "gloo_cpu_rank34_of_300.pt.trace.json.gz",
    "h100_bert_small.pt.trace.json.gz",
    "h100_timesformer.pt.trace.json.gz",
    "mi300_resnet_rank0_of_8.pt.trace.json.gz",
    "v100_ddp_epoch_us.pt.trace.json.gz",
    "v100_resnet50_2021.pt.trace.json.gz",
    "vllm_cuda_graphs.pt.trace.json.gz",
]
COMPARED = (
    *("temporal_breakdown", "idle_breakdown", "comm_overlap", "kernel_breakdown", "launch_stats", "queue_length"),
    *("memory_bandwidth", "operators", "steps", "annotations", "collectives", "critical_path"),
)

KERNELS_BY_STEP = """
INCLUDE PERFETTO MODULE torch.kernels;
SELECT step, name, count(*), sum(dur) FROM torch_kernel GROUP BY 1, 2
"""
BY_STEP = """
INCLUDE PERFETTO MODULE torch.ops;
SELECT step, rule, op_name, count(*), sum(dur) FROM torch_kernel GROUP BY 1, 2, 3
"""
OPS_BY_STEP = "INCLUDE PERFETTO MODULE torch.ops; SELECT step, name, count(*), sum(dur) FROM torch_op GROUP BY 1, 2"

Table = dict[Any, tuple[int, int]]


class Subject:
    """A trace on the server, and the same trace as plain Python reads it."""

    def __init__(self, server: Server, path: Path) -> None:
        self.server = server
        self.name = path.name
        self.id = server.upload(path)["id"]
        raw = path.read_bytes()
        self.document = Document(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        self.steps = sorted(self.document.steps)

    def sql(self, sql: str) -> list[list[Any]]:
        answer = self.server.api.post(f"/traces/{self.id}/query", json={"sql": sql, "limit": None}, timeout=120)
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def analysis(self, name: str, trace: str | None = None, **params: Any) -> dict[str, Any] | None:
        """Return the tables of an analysis by name, or None if the request is refused."""
        answer = self.server.api.get(f"/traces/{trace or self.id}/analysis/{name}", params=params, timeout=120)
        if answer.status_code == 422:
            return None
        assert answer.status_code == 200, answer.text
        tables = answer.json()["tables"].items()
        return {
            key: [dict(zip((column["name"] for column in table["columns"]), row, strict=True)) for row in table["rows"]]
            for key, table in tables
        }

    def kernels(self, **params: Any) -> Table:
        """Return the count and total ns of the kernels, copies and memsets of each name."""
        result = self.analysis("kernel_breakdown", top=1_000_000, **params)
        rows = result["kernels"] if result else []
        return _totals((row["name"], row["count"], row["sum_ns"]) for row in rows)


def _totals(rows: Any) -> Table:
    totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for key, count, time in rows:
        totals[key][0] += count
        totals[key][1] += time
    return {key: (count, time) for key, (count, time) in totals.items()}


def _added(tables: list[Table]) -> Table:
    return _totals((key, *total) for table in tables for key, total in table.items())


def _rounded(value: Any) -> Any:
    """Round floats to ten digits, because their order of summation varies; integers stay exact."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def params() -> list[Any]:
    return [*OURS, *(pytest.param(name, marks=needs_shared) for name in THEIRS)]


@pytest.fixture(scope="module", params=params(), ids=lambda name: name.partition(".")[0])
def subject(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    name = request.param
    if name == "made.json":
        path = write_trace(tmp_path_factory.mktemp("made") / name, TraceShape(steps=3, devices=(0, 1)))
    else:
        path = DATA / name if name in OURS else SHARED / name
    return Subject(server, path)


def test_sql_analysis_and_plain_python_agree_on_the_kernels_of_each_step(subject: Subject) -> None:
    links = subject.document.attributed
    work = [(links.step(item), item) for item in links.work]
    by_step: dict[int | None, Table] = defaultdict(dict)
    for step, name, count, time in subject.sql(KERNELS_BY_STEP):
        by_step[step][name] = count, time
    for step in (*subject.steps, None):
        oracle = _totals((work_item.name, 1, work_item.lasts) for at, work_item in work if at == step)
        assert by_step[step] == oracle
        if step is not None and oracle:
            assert subject.kernels(steps=step) == oracle


def test_kernels_inside_and_outside_of_steps_add_up_to_all_kernels(subject: Subject) -> None:
    parts = [subject.kernels(steps=step) for step in subject.steps]
    if subject.steps:
        parts.append(subject.kernels(selection=json.dumps({"exclude": {"steps": subject.steps}})))
    else:
        parts.append(subject.kernels())
    assert _added(parts) == subject.kernels()


def test_attribution_rules_cover_all_work_and_equal_those_of_sql(subject: Subject) -> None:
    links = subject.document.attributed
    oracle = _totals((links.rule(item), 1, item.lasts) for item in links.work)
    rows = subject.sql(
        "INCLUDE PERFETTO MODULE torch.ops; SELECT rule, count(*), sum(dur) FROM torch_kernel GROUP BY 1"
    )
    assert _totals(rows) == oracle
    for name in ("operators", "kernel_breakdown"):
        result = subject.analysis(name)
        if result:
            assert _totals((row["rule"], row["work"], row["time_ns"]) for row in result["attribution"]) == oracle
            assert sum(row["in_steps"] for row in result["attribution"]) == sum(
                links.step(item) is not None for item in links.work
            )


def test_each_operator_has_the_same_work_by_sql_and_by_plain_python(subject: Subject) -> None:
    links = subject.document.attributed
    oracle: Table = _totals(
        ((links.step(item), getattr(links.operator(item), "name", None)), 1, item.lasts) for item in links.work
    )
    rows = subject.sql(BY_STEP)
    assert _totals(((step, op), count, time) for step, _, op, count, time in rows) == oracle
    result = subject.analysis("operators")
    names = Counter(name for _, name in oracle)
    for row in (result or {"operators": []})["operators"]:
        if row["kind"] == "op" and names[row["name"]]:
            times = [time for (_, name), (_, time) in oracle.items() if name == row["name"]]
            assert row["device_self_ns"] == sum(times), row["name"]


def test_operators_of_each_step_are_those_that_begin_in_it(subject: Subject) -> None:
    links = subject.document.attributed
    oracle = _totals(((links.step(item), item.name), 1, item.lasts) for item in links.operators)
    assert _totals(((step, name), count, time) for step, name, count, time in subject.sql(OPS_BY_STEP)) == oracle


def test_analyses_of_a_split_step_equal_those_of_the_step_in_its_trace(subject: Subject) -> None:
    if not subject.steps:
        pytest.skip("there are no steps in this trace")
    children = created_traces(subject.server, split(subject.server, subject.id, by="step"))
    assert [child["selection"]["steps"] for child in children] == [[step] for step in subject.steps]
    for step, child in zip(subject.steps, children, strict=True):
        for name in COMPARED:
            assert _rounded(subject.analysis(name, child["id"])) == _rounded(subject.analysis(name, steps=step)), name

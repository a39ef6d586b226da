"""Requests of the Perfetto UI that contain SQL outside of queries."""

from typing import Any

import pytest

from service.engine.names import Names
from service.engine.trace_processor import wire
from service.engine.trace_processor.rpc import PerfettoRequest
from service.trace.errors import SqlRefused


def summary(**more: Any) -> Any:
    return wire.request(wire.SUMMARIZE_TRACE, trace_summary_args=more)


def structured(sql: str) -> dict[str, Any]:
    return {"metric_spec": [{"id": "one", "value": "x", "query": {"sql": {"sql": sql, "column_names": ["x"]}}}]}


@pytest.mark.parametrize(
    "request_",
    [
        summary(proto_specs=[structured("SELECT 1 AS x; ATTACH '/x' AS y")]),
        summary(proto_specs=[structured("SELECT 'ATTACH' AS x")]),  # a fragment that may be inserted anywhere
        summary(textproto_specs=['query { id: "a" sql { sql: "\\101TTACH \'/x\' AS y" column_names: "x" } }']),
        summary(textproto_specs=["nothing that could be read"]),
        wire.request(13, register_sql_package_args={"modules": [{"name": "a.b", "sql": "VACUUM INTO '/x'"}]}),
        wire.request(20, statement_args={"sql": "'ATTACH '/x' AS y", "start_offset": 1}),
    ],
    ids=["specification", "part", "text", "no specification", "package", "statement"],
)
def test_requests_other_than_queries_are_checked(request_: Any) -> None:
    with pytest.raises(SqlRefused):
        PerfettoRequest(request_).check(Names(), None)


def test_requests_without_forbidden_sql_are_allowed() -> None:
    specifications = summary(proto_specs=[structured("SELECT 1 AS x")], textproto_specs=['query { id: "attachment" }'])
    metric = wire.request(wire.COMPUTE_METRIC, compute_metric_args={"metric_names": ["trace_metadata"]})
    for request_ in (wire.query_request("SELECT 'ATTACH'"), specifications, metric):
        PerfettoRequest(request_).check(Names(), None)


def test_unknown_fields_are_removed() -> None:
    request_ = wire.Rpc.FromString(wire.request(wire.GET_STATUS).SerializeToString() + b"\xfa\x3f\x06ATTACH")
    PerfettoRequest(request_).check(Names(), None)
    assert b"ATTACH" not in request_.SerializeToString()

"""Requests of the Perfetto UI that contain SQL outside of queries."""

from typing import Any

import pytest

from service.engine.names import Names
from service.engine.trace_processor import wire
from service.engine.trace_processor.rpc import PerfettoRequest
from service.trace.errors import SqlRefused

REGISTER_SQL_PACKAGE, STATEMENT_STREAMING = 13, 20
"""Numbers of methods in Perfetto's `TraceProcessorMethod`; the service does not use these methods itself."""


def summary_request(**args: Any) -> Any:
    return wire.request(wire.SUMMARIZE_TRACE, trace_summary_args=args)


def metric_specification(sql: str) -> dict[str, Any]:
    """Return a specification of a metric that the SQL computes."""
    return {"metric_spec": [{"id": "one", "value": "x", "query": {"sql": {"sql": sql, "column_names": ["x"]}}}]}


@pytest.mark.parametrize(
    "request_",
    [
        summary_request(proto_specs=[metric_specification("SELECT 1 AS x; ATTACH '/x' AS y")]),
        # a text that may be inserted anywhere in a query, even outside of quotes
        summary_request(proto_specs=[metric_specification("SELECT 'ATTACH' AS x")]),
        summary_request(textproto_specs=['query { id: "a" sql { sql: "\\101TTACH \'/x\' AS y" column_names: "x" } }']),
        summary_request(textproto_specs=["text that can't be parsed"]),
        wire.request(
            REGISTER_SQL_PACKAGE, register_sql_package_args={"modules": [{"name": "a.b", "sql": "VACUUM INTO '/x'"}]}
        ),
        wire.request(STATEMENT_STREAMING, statement_args={"sql": "'ATTACH '/x' AS y", "start_offset": 1}),
    ],
    ids=["specification", "fragment", "text", "no specification", "package", "statement"],
)
def test_forbidden_sql_outside_of_queries_is_refused(request_: Any) -> None:
    with pytest.raises(SqlRefused):
        PerfettoRequest(request_).check(Names(), None)


def test_requests_without_forbidden_sql_are_allowed() -> None:
    specifications = summary_request(
        proto_specs=[metric_specification("SELECT 1 AS x")], textproto_specs=['query { id: "attachment" }']
    )
    metric = wire.request(wire.COMPUTE_METRIC, compute_metric_args={"metric_names": ["trace_metadata"]})
    for request_ in (wire.query_request("SELECT 'ATTACH'"), specifications, metric):
        PerfettoRequest(request_).check(Names(), None)


def test_unknown_fields_are_removed() -> None:
    request_ = wire.Rpc.FromString(wire.request(wire.GET_STATUS).SerializeToString() + b"\xfa\x3f\x06ATTACH")
    PerfettoRequest(request_).check(Names(), None)
    assert b"ATTACH" not in request_.SerializeToString()

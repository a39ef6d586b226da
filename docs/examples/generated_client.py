"""Uploads a trace, and queries, analyses and splits it, with a client that openapi-python-client has generated.

Usage: python generated_client.py URL TRACE [TOKEN]
"""

import sys
from pathlib import Path

import httpx
from tracedock_api import AuthenticatedClient, Client
from tracedock_api.api.analysis import analyze_operators
from tracedock_api.api.jobs import get_job
from tracedock_api.api.query import run_query
from tracedock_api.api.split_and_merge import split_trace
from tracedock_api.api.traces import get_trace, upload_trace
from tracedock_api.models import (
    Answer,
    Job,
    Problem,
    QueryRequest,
    QueryResult,
    Selection,
    SplitBy,
    SplitRequest,
    Trace,
)
from tracedock_api.types import File

WAIT_S = 60.0


def expect(kind, answer):
    """Return the answer of an operation if it is of this kind; otherwise end with the reason."""
    if isinstance(answer, Problem):
        sys.exit(f"{answer.code}: {answer.detail}")
    if not isinstance(answer, kind):
        sys.exit(f"got {answer!r} instead of {kind.__name__}")
    return answer


def main(url, path, token=""):
    """Upload the trace, and print what the server says about it."""
    timeout = httpx.Timeout(2 * WAIT_S)
    client = AuthenticatedClient(url, token=token, timeout=timeout) if token else Client(url, timeout=timeout)
    with path.open("rb") as file:
        answer = upload_trace.sync(path.name, client=client, body=File(payload=file), wait=WAIT_S)
    trace = expect(Trace, answer)
    print(trace.name, trace.state.value, trace.events.kept)

    sql = "SELECT name, dur FROM slice ORDER BY dur DESC"
    answer = run_query.sync(trace.id, client=client, body=QueryRequest(sql=sql, limit=2), wait=WAIT_S)
    for name, duration_ns in expect(QueryResult, answer).rows:
        print(duration_ns, name)

    answer = expect(Answer, analyze_operators.sync(trace.id, client=client, steps=[trace.steps[0].number]))
    main_table = next(iter(answer.tables.additional_properties.values()))
    print([column.name for column in main_table.columns][:3], len(main_table.rows))

    split = SplitRequest(selection=Selection(categories=["cpu_op"]), by=SplitBy.STEP)
    job = expect(Job, split_trace.sync(trace.id, client=client, body=split, wait=WAIT_S))
    job = expect(Job, get_job.sync(job.id, client=client, wait=WAIT_S))
    for piece_id in job.result.traces:
        piece = expect(Trace, get_trace.sync(piece_id, client=client))
        print(piece.name, piece.selection.categories, piece.events.kept)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

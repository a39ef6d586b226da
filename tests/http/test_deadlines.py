"""Work for a client has a deadline, and ends when the client disconnects."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service.jobs.derivation_jobs import AT_ONCE
from tests.http.conftest import connected
from tests.server import Server
from tests.waiting import until


@pytest.fixture(scope="module")
def hasty_server(tmp_path_factory: pytest.TempPathFactory, large_trace: Path) -> Iterator[tuple[Server, str]]:
    """A server whose deadlines are too short for any work, and the id of a trace of 60 MB on it."""
    server = Server(tmp_path_factory.mktemp("hasty") / "data", analysis_timeout_s=0.001, job_timeout_s=0.001).start()
    try:
        yield server, server.upload(large_trace)["id"]
    finally:
        server.stop()


def assert_deadline_exceeded(answer: httpx.Response, work: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
    assert answer.json()["limit_s"] == 0.001
    assert work in answer.json()["detail"]


def test_an_analysis_ends_at_its_deadline(hasty_server: tuple[Server, str]) -> None:
    server, trace = hasty_server
    assert_deadline_exceeded(server.api.get(f"/traces/{trace}/analysis/operators"), "analysis")


def test_a_dry_run_ends_at_its_deadline(hasty_server: tuple[Server, str]) -> None:
    server, trace = hasty_server
    answer = server.api.post(f"/traces/{trace}/split", json={"by": "step", "dry_run": True})
    assert_deadline_exceeded(answer, "dry run")
    until(lambda: not server.children("tracedock derive"))


def test_a_download_that_does_not_begin_ends_at_its_deadline(hasty_server: tuple[Server, str]) -> None:
    server, trace = hasty_server
    answer = server.api.get(f"/traces/{trace}/download", params={"format": "json", "selection": '{"names": ["a*"]}'})
    assert_deadline_exceeded(answer, "document")
    until(lambda: not server.children("tracedock export"))


def test_split_fails_at_its_deadline_and_leaves_no_files(hasty_server: tuple[Server, str]) -> None:
    server, trace = hasty_server
    answer = server.api.post(f"/traces/{trace}/split", json={"by": "step"})
    assert_deadline_exceeded(answer, "split")
    until(lambda: not server.children("tracedock derive"))
    assert list((server.data / "making").iterdir()) == []


def send_dry_run(client: socket.socket, trace: str) -> None:
    body = json.dumps({"by": "step", "dry_run": True}).encode()
    client.sendall(
        f"POST /api/v1/traces/{trace}/split HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def suspend_planners(server: Server) -> list[psutil.Process]:
    """Suspend all processes that plan splits, and return those that are suspended: some may just have ended."""
    suspended = []
    for planner in server.children("tracedock derive"):
        with suppress(psutil.NoSuchProcess):
            planner.suspend()
            suspended += [planner] if planner.status() == psutil.STATUS_STOPPED else []
    return suspended


def test_dry_runs_are_limited_and_end_when_their_clients_disconnect(
    start_server: Callable[..., Server], large_trace: Path
) -> None:
    server = start_server()
    trace = server.upload(large_trace)["id"]
    with ExitStack() as clients:
        for _ in range(AT_ONCE + 30):
            send_dry_run(clients.enter_context(connected(server)), trace)
        until(lambda: len(suspend_planners(server)) == AT_ONCE)
        assert len(server.children("tracedock derive")) == AT_ONCE
    until(lambda: not server.children("tracedock derive"))


@pytest.mark.parametrize(
    "names",
    [
        ["*a*a*a*a*a*aQ"],
        ["*" * 999 + "a"],
        ["*a" * 499 + "Q"] * 10,
        ["re:(a|aa)+$Q", "re:^(a+)+$", "re:(.*a){100}Q"],
        ["re:(?i)" + "(x*" * 150 + ")" * 150],
    ],
)
@pytest.mark.parametrize("kind", ["analysis", "dry run", "download"])
def test_costly_patterns_do_not_exceed_the_deadline(
    server: Server, step_trace: Path, names: list[str], kind: str
) -> None:
    trace = server.upload(step_trace)["id"]
    selection = {"names": names}
    requests: dict[str, Callable[[], httpx.Response]] = {
        "analysis": lambda: server.api.get(
            f"/traces/{trace}/analysis/annotations", params={"selection": json.dumps(selection)}
        ),
        "dry run": lambda: server.api.post(f"/traces/{trace}/split", json={"selection": selection, "dry_run": True}),
        "download": lambda: server.api.get(f"/traces/{trace}/download", params={"selection": json.dumps(selection)}),
    }
    answer = requests[kind]()
    assert answer.status_code == 200 or answer.json()["code"] in {"nothing_selected", "bad_selection", "not_applicable"}


@pytest.mark.parametrize(
    "selection",
    [
        {"steps": list(range(100_000))},
        {"steps": [1 << 62]},
        {"streams": ["0/7"] * 10_000},
        {"threads": ["x" * 9_999] * 1_000},
        {"window": {"start_ns": -(1 << 63), "end_ns": 1 << 63}},
        {"window": {"start_ns": -(1 << 63), "end_ns": -(1 << 63) + 1}},
        {"min_dur_ns": 1 << 80},
        {"names": ["\x00"]},
        {"names": ["\x00*"]},
        {"exclude": {"exclude": {"exclude": {}}}},
        {"exclude": {"steps": list(range(9_999))}, "names": ["*"]},
    ],
    ids=lambda selection: json.dumps(selection)[:40],
)
def test_extreme_selections_are_refused_or_answered(
    server: Server, step_trace: Path, selection: dict[str, Any]
) -> None:
    trace = server.upload(step_trace)["id"]
    answer = server.api.post(f"/traces/{trace}/split", json={"selection": selection, "dry_run": True})
    assert answer.status_code in {200, 422}, answer.text[:300]
    assert answer.status_code == 200 or len(answer.content) < 20_000


@pytest.mark.parametrize(
    "text", ['{"window": {"start_ns": NaN}}', '{"names": ["\\ud800"]}', "[" * 100_000, '{"steps": [1e400]}']
)
def test_selection_that_is_not_json_is_refused(server: Server, step_trace: Path, text: str) -> None:
    trace = server.upload(step_trace)["id"]
    body = f'{{"selection": {text}, "dry_run": true}}'
    answer = server.api.post(f"/traces/{trace}/split", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.json()["code"] in {"bad_request", "bad_selection"}

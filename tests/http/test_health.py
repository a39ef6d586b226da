"""Health, readiness and metrics of the server."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.server import Server


def test_running_server_is_healthy(server: Server) -> None:
    answer = httpx.get(f"{server.url}/healthz", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_working_server_is_ready(server: Server) -> None:
    answer = httpx.get(f"{server.url}/readyz", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "reasons": []})


def test_health_needs_no_token_and_metrics_do(start_server: Callable[..., Server]) -> None:
    server = start_server(token="secret-of-sixteen")
    statuses = {
        path: httpx.get(f"{server.url}/{path}", trust_env=False).status_code
        for path in ("healthz", "readyz", "metrics")
    }
    assert statuses == {"healthz": 200, "readyz": 200, "metrics": 401}
    token = {"Authorization": "Bearer secret-of-sixteen"}
    assert httpx.get(f"{server.url}/metrics", headers=token, trust_env=False).status_code == 200


def test_unready_server_lists_each_reason(start_server: Callable[..., Server], tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\nexit 1\n")
    engine.chmod(0o755)
    server = start_server(min_free_bytes=1 << 20 << 30, engine=engine, engine_sandbox="off")
    engine.unlink()
    writer = sqlite3.connect(server.data / "catalog.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")  # no other connection may write now
    answer = server.api.get(f"{server.url}/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unready")
    assert [(reason["what"], reason["code"]) for reason in answer.json()["reasons"]] == [
        ("catalog", "catalog_unwritable"), ("disk", "no_room"), ("engine", "engine_unavailable"),
    ]  # fmt: skip
    writer.execute("ROLLBACK")
    writer.close()
    assert len(server.api.get(f"{server.url}/readyz").json()["reasons"]) == 2
    assert server.api.get(f"{server.url}/healthz").status_code == 200

"""The whole service: start, pages, shutdown, and leaks."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service import __version__
from tests import openapi
from tests.http.conftest import ENDLESS, ENDLESS_ROWS
from tests.ports import free_port
from tests.server import Server
from tests.waiting import PATIENCE_S, until

StartServer = Callable[..., Server]
FORMS = ["application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"]


def page(server: Server, path: str, **more: Any) -> httpx.Response:
    return server.api.get(f"{server.url}{path}", **more)


def refused_start(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a server that must refuse to start."""
    return subprocess.run(
        [sys.executable, "-m", "service", "serve", *map(str, arguments)], env=environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# -- pages ---------------------------------------------------------------------------------------------------------


def test_api_page_needs_no_other_host(server: Server) -> None:
    answer = page(server, "/docs")
    assert answer.status_code == 200
    sources = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", answer.text)
    assert sources
    assert not [source for source in sources if re.match(r"(https?:)?//", source)]
    for source in sources:
        assert page(server, source).status_code == 200, source


def test_api_description_is_valid(server: Server) -> None:
    document = openapi.resolved(openapi.document_of(server))
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__
    assert document["paths"].keys() >= {"/api/v1/traces", "/api/v1/traces/{trace_id}/query", "/healthz"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation_name = f"{method} {path}"
            assert operation["summary"], operation_name
            declared = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), operation_name
    identifiers = [operation["operationId"] for paths in document["paths"].values() for operation in paths.values()]
    assert len(identifiers) == len(set(identifiers))
    for reference in re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(document)):
        place = document
        for step in reference.split("/"):
            place = place[step]


def test_api_description_leaves_out_paths_for_browsers(server: Server) -> None:
    paths = page(server, "/openapi.json").json()["paths"]
    assert not [path for path in paths if path.startswith(("/perfetto", "/static"))]


@pytest.mark.parametrize("path", ["/", "/traces/000000000000", "/static/perfetto.js"])
def test_pages_are_served(server: Server, path: str) -> None:
    answer = page(server, path)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"


# -- starting ------------------------------------------------------------------------------------------------------


def test_second_server_on_the_same_data_refuses_with_the_reason(server: Server) -> None:
    process = refused_start("--port", 0, "--data", server.data, "--perfetto-port", 0)
    assert process.returncode == 1
    assert f"Another server works on {server.data}" in process.stderr
    assert process.stdout == ""
    assert page(server, "/healthz").status_code == 200


def test_port_in_use_is_named(server: Server, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    process = refused_start("--data", tmp_path / "data", "--port", port, "--perfetto-port", 0)
    assert process.returncode == 1
    assert re.search(rf"Can't\W+listen\W+on\W+port\W+{port}\W+of\W+127\.0\.0\.1", process.stderr)
    assert "Traceback" not in process.stderr


def test_unusable_engine_is_reported_at_start(tmp_path: Path) -> None:
    process = refused_start("--port", 0, "--data", tmp_path / "data", "--perfetto-port", 0, TRACEDOCK_ENGINE="/nowhere")
    assert process.returncode == 1
    assert "TRACEDOCK_ENGINE=/nowhere is not a program that can be run" in process.stderr


def test_a_server_may_listen_on_all_addresses(start_server: StartServer) -> None:
    server = start_server(host="0.0.0.0", token="0123456789abcdef", perfetto_port=free_port())
    assert server.url.startswith("http://127.0.0.1:")
    assert page(server, "/healthz").status_code == 200


# -- ending --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_all_its_processes(start_server: StartServer, step_trace: Path, number: int) -> None:
    server = start_server()
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    family = server.children()
    assert family
    psutil.Process(server.pid).send_signal(number)
    assert not psutil.wait_procs(family, timeout=PATIENCE_S)[1]
    assert server.stop() == 0


@pytest.mark.parametrize("sql", [ENDLESS, ENDLESS_ROWS])
def test_running_query_does_not_delay_shutdown(start_server: StartServer, step_trace: Path, sql: str) -> None:
    server = start_server()
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    engine = server.engine(trace)
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=20) as connection:
        body = json.dumps({"sql": sql, "limit": None, "timeout_s": 10 * PATIENCE_S}).encode()
        head = f"POST /api/v1/traces/{trace}/query HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\n"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + length).encode() + body)
        until(lambda: engine.status() == psutil.STATUS_RUNNING)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < PATIENCE_S
    assert not engine.is_running()


def test_a_killed_server_leaves_no_process(start_server: StartServer, step_trace: Path) -> None:
    server = start_server()
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    family = server.children()
    server.kill()
    assert not psutil.wait_procs(family, timeout=PATIENCE_S)[1]
    server.start()
    assert server.rows(trace, "SELECT count(*) FROM slice") == [[487]]


# -- leaks ---------------------------------------------------------------------------------------------------------


def test_server_leaks_no_files_threads_or_processes(start_server: StartServer, step_trace: Path) -> None:
    server = start_server(keep_ready=True)
    trace = server.upload(step_trace)["id"]
    process = psutil.Process(server.pid)

    path = f"/traces/{trace}"

    def work(queries: int, sessions: int) -> None:
        for number in range(queries):
            question = {"sql": ["SELECT * FROM slice", "SELECT nope", ENDLESS_ROWS][number % 3], "limit": 1000}
            server.api.post(f"{path}/query", json=question, headers={"Accept": FORMS[number % 4]})
        for _ in range(sessions):
            server.api.post(f"{path}/session", params={"wait": 30})
            query = {"sql": ENDLESS_ROWS, "limit": None}
            with server.api.stream("POST", f"{path}/query", json=query, headers={"Accept": "text/csv"}) as rows:
                next(rows.iter_raw())
            server.api.delete(f"{path}/session")

    work(8, 2)
    kept_ready = ["--stdiod", "tracedock fork server"]
    until(lambda: [len(server.children(kind)) for kind in kept_ready] == [1] * len(kept_ready))
    files, threads = process.num_fds(), process.num_threads()
    work(40, 3)
    until(lambda: process.num_fds() <= files)
    assert process.num_threads() <= threads + 4  # the thread pool may grow to its full size
    until(lambda: [len(server.children(kind)) for kind in kept_ready] == [1] * len(kept_ready))
    assert len(server.children()) == len(kept_ready)
    log = server.log_text()
    for complaint in ("never awaited", "never retrieved", "was destroyed", "Traceback", "ResourceWarning"):
        assert complaint not in log, log[-3000:]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system has no /proc")
def test_idle_server_and_its_processes_take_little_memory(tmp_path: Path, step_trace: Path) -> None:
    server = Server(tmp_path / "data", keep_ready=True)
    server.command = (sys.executable, "-m", "service")  # a fork of the tests' interpreter shares the memory of that one
    server.start()
    try:
        server.upload(step_trace)  # the fork server has loaded its code then
        until(lambda: [len(server.children(kind)) for kind in ("", "--stdiod", "tracedock fork server")] == [2, 1, 1])
        processes = [psutil.Process(server.pid), *server.children()]
        until(lambda: sum(process.memory_full_info().pss for process in processes) < 215_000_000)
    finally:
        server.stop()


def test_server_loads_no_code_of_its_children() -> None:
    """Numba, Dask and DuckDB take a second and 100 MB, which the server would spend at each start."""
    children = {"numba", "distributed", "duckdb", "obstore", "pandas"}
    children |= {"pyarrow.compute", "service.analysis.answers", "service.analysis.steps", "service.store.parts"}
    loaded = f"import sys, service.app; print(sorted({children} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", loaded], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "[]"

"""Uploads over loopback, next to nginx's DAV PUT of the same file, and their cost to the server and other clients."""

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.bench.figures import Row, timed
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.tus import begin, chunk_head

MEGABYTES, CHUNK, AT_ONCE, BESIDE, ROUNDS = 205, 8 << 20, 8, 4, 5
NGINX, PUT, TUS = f"PUT of {MEGABYTES} MB to nginx", f"PUT of {MEGABYTES} MB", f"tus of {MEGABYTES} MB in 8 MB chunks"
MANY, BUSY = f"{AT_ONCE} uploads at once", f"GET /traces during an ingest and {BESIDE} uploads"
_CONFIG = """
worker_processes auto; daemon off; pid {folder}/nginx.pid; error_log stderr crit;
events {{ }}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {folder}/incoming;
  server {{ listen 127.0.0.1:{port}; root {folder}/kept; location / {{ dav_methods PUT; }} }}
}}
"""


def measure_uploads() -> str:
    """Measure all uploads, and return their rows with a summary as text."""
    with tempfile.TemporaryDirectory() as folder:
        return _report(*_measured(Path(folder)))


def _measured(folder: Path) -> tuple[list[Row], list[float]]:
    path = write_trace(folder / "uploaded.json", sized(TraceShape(), MEGABYTES * 10**6))
    server = Server(folder / "uploads", keep_ready=True).start()
    server.api.timeout = 3600
    try:
        with _nginx(folder) as url:
            ways = {NGINX: lambda: put(f"{url}/a", path)} if url else {}
            ways[PUT] = lambda: put(f"{server.url}/api/v1/traces/a.json", path)
            ways[TUS] = lambda: tus(server, path)
            rows = _in_turns(ways, lambda: _forget(server))
        clients: list[Callable[[], object]] = [
            lambda: put(f"{server.url}/api/v1/traces/a.json", path),
            lambda: tus(server, path),
        ]
        with timed(MANY, server, rows):
            _at_once(clients * (AT_ONCE // 2))
        _forget(server)
        put(f"{server.url}/api/v1/traces/a.json", path)
        latencies = _latencies(server, [lambda: tus(server, path)] * BESIDE)
    finally:
        server.stop()
    return rows, latencies


def _report(rows: list[Row], latencies: list[float]) -> str:
    wall = {row.step: row.wall_s for row in rows}
    lines = [
        f"{step}: {wall[NGINX] / wall[step]:.2f} x the throughput of nginx.\n" for step in (PUT, TUS) if NGINX in wall
    ]
    peak = next(row.peak_mb["server"] for row in rows if row.step == MANY)
    return "".join(
        [
            *(f"| {row.step:37} | {row.wall_s:8.2f} |\n" for row in rows),
            *(lines or ["nginx is not installed: `apt-get install nginx-light`.\n"]),
            f"{MANY}: the server took {peak:.0f} MB at most.\n",
            f"{BUSY}: {statistics.median(latencies) * 1e3:.1f} ms in the median of {len(latencies)}.\n",
        ]
    )


def _in_turns(ways: Mapping[str, Callable[[], object]], afterwards: Callable[[], object]) -> list[Row]:
    """Measure the median time of each way, in alternating rounds: other load on the machine then affects all alike."""
    seconds = defaultdict[str, list[float]](list)
    for _ in range(ROUNDS):
        for step, upload in ways.items():
            start = time.perf_counter()
            upload()
            seconds[step].append(time.perf_counter() - start)
            afterwards()
    return [Row(step, statistics.median(times)) for step, times in seconds.items()]


def _forget(server: Server) -> None:
    """Delete all traces once they are ingested: a second trace of the same bytes would not be ingested."""
    for trace in server.api.get("/traces").json()["traces"]:
        server.api.get(f"/traces/{trace['id']}", params={"wait": 3600})
        server.api.delete(f"/traces/{trace['id']}")


def _at_once(uploads: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=upload) for upload in uploads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _latencies(server: Server, uploads: list[Callable[[], object]]) -> list[float]:
    """Return the latency in seconds of each listing of traces during the uploads."""
    latencies = []
    with httpx.Client(trust_env=False) as client:
        load = threading.Thread(target=_at_once, args=[uploads])
        load.start()
        while load.is_alive():
            start = time.perf_counter()
            client.get(f"{server.url}/api/v1/traces").raise_for_status()
            latencies.append(time.perf_counter() - start)
            time.sleep(0.01)
        load.join()
    return latencies


# -- cheap clients -----------------------------------------------------------------------------------------------------


def put(url: str, path: Path) -> None:
    """Upload the whole file in one request."""
    parts, size = urlsplit(url), path.stat().st_size
    with socket.create_connection((str(parts.hostname), parts.port or 80)) as wire, path.open("rb") as file:
        wire.sendall(f"PUT {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {size}\r\n\r\n".encode())
        wire.sendfile(file)
        _check(wire)


def tus(server: Server, path: Path) -> None:
    """Upload the file in chunks, each sent after the previous one is acknowledged."""
    upload, size = begin(server, path.stat().st_size), path.stat().st_size
    parts = urlsplit(upload)
    with socket.create_connection((str(parts.hostname), parts.port or 80)) as wire, path.open("rb") as file:
        for at in range(0, size, CHUNK):
            count = min(CHUNK, size - at)
            wire.sendall(chunk_head(upload, at, count))
            wire.sendfile(file, at, count)
            _check(wire)


def _check(wire: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += wire.recv(1 << 16)
    if not answer.split(b" ", 2)[1].startswith(b"2"):
        sys.exit(f"an upload failed: {answer.decode()}")


@contextmanager
def _nginx(folder: Path) -> Iterator[str]:
    """Run an nginx that accepts files, and yield its URL; yield an empty string if nginx is not installed."""
    command = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if command is None:
        yield ""
        return
    place = folder / "nginx"
    for part in (folder, place, place / "incoming", place / "kept"):
        part.mkdir(exist_ok=True)
        part.chmod(0o777)  # nginx's workers run as another user if root starts it
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (place / "nginx.conf").write_text(_CONFIG.format(folder=place, port=port))
    process = subprocess.Popen([command, "-p", str(place), "-c", str(place / "nginx.conf")])
    try:
        url = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                httpx.get(url, trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()

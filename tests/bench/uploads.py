"""Benchmark of uploads over loopback.

It compares their times with nginx's DAV PUT of the same file, and measures what they cost the server and other clients.
"""

import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.bench.figures import Row, served, settle, timed
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.tus import begin, chunk_head

MEGABYTES, CHUNK_BYTES = 205, 8 << 20
ROUNDS = 5
AT_ONCE = 8  # uploads at the same time, to measure the server's memory
IN_BACKGROUND = 4  # uploads at the same time, to measure the latency of other requests

# names of the measured steps
NGINX, PUT, TUS = f"PUT of {MEGABYTES} MB to nginx", f"PUT of {MEGABYTES} MB", f"tus of {MEGABYTES} MB in 8 MB chunks"
MANY, BUSY = f"{AT_ONCE} uploads at once", f"GET /traces during an ingest and {IN_BACKGROUND} uploads"

_NGINX_CONFIG = """
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
        return _report(*_measure(Path(folder)))


def _measure(folder: Path) -> tuple[list[Row], list[float]]:
    """Return the rows of all steps but `BUSY`, and the latencies of `BUSY` in seconds."""
    path = write_trace(folder / "uploaded.json", sized(TraceShape(), MEGABYTES * 10**6))
    with served(folder / "uploads", keep_ready=True) as server:
        settle(server)
        with _nginx(folder) as nginx_url:
            uploads: dict[str, Callable[[], object]] = {
                PUT: lambda: put(f"{server.url}/api/v1/traces/a.json", path),
                TUS: lambda: tus(server, path),
            }
            if nginx_url:
                uploads = {NGINX: lambda: put(f"{nginx_url}/a", path), **uploads}
            rows = _time_in_turns(uploads, lambda: _delete_traces(server))
        with timed(MANY, server, rows):
            _run_at_once([uploads[PUT], uploads[TUS]] * (AT_ONCE // 2))
        _delete_traces(server)
        uploads[PUT]()
        latencies = _latencies(server, [uploads[TUS]] * IN_BACKGROUND)
    return rows, latencies


def _report(rows: list[Row], latencies: list[float]) -> str:
    seconds = {row.step: row.wall_s for row in rows}
    if NGINX in seconds:
        comparison = [
            f"{step}: {seconds[NGINX] / seconds[step]:.2f} x the throughput of nginx.\n" for step in (PUT, TUS)
        ]
    else:
        comparison = ["nginx is not installed: `apt-get install nginx-light`.\n"]
    peak_mb = next(row.peak_mb["server"] for row in rows if row.step == MANY)
    median_ms = statistics.median(latencies) * 1e3
    return "".join(
        [
            *(f"| {row.step:37} | {row.wall_s:8.2f} |\n" for row in rows),
            *comparison,
            f"{MANY}: the server took {peak_mb:.0f} MB at most.\n",
            f"{BUSY}: the median of {len(latencies)} requests took {median_ms:.1f} ms.\n",
        ]
    )


def _time_in_turns(uploads: Mapping[str, Callable[[], object]], clean_up: Callable[[], object]) -> list[Row]:
    """Measure the median time of each upload, in rounds: other load on the machine then affects all uploads alike."""
    seconds = defaultdict[str, list[float]](list)
    for _ in range(ROUNDS):
        for step, upload in uploads.items():
            start = time.perf_counter()
            upload()
            seconds[step].append(time.perf_counter() - start)
            clean_up()
    return [Row(step, statistics.median(times)) for step, times in seconds.items()]


def _delete_traces(server: Server) -> None:
    """Delete all traces once they are ingested: a second trace of the same bytes would not be ingested."""
    for trace in server.api.get("/traces").json()["traces"]:
        server.api.get(f"/traces/{trace['id']}", params={"wait": 3600})
        server.api.delete(f"/traces/{trace['id']}")


def _run_at_once(uploads: list[Callable[[], object]]) -> None:
    """Run the uploads in threads; raise the error of the first one that fails."""
    with ThreadPoolExecutor(len(uploads)) as threads:
        for upload in [threads.submit(upload) for upload in uploads]:
            upload.result()


def _latencies(server: Server, uploads: list[Callable[[], object]]) -> list[float]:
    """List the traces again and again during the uploads; return the latency of each request in seconds."""
    latencies = []
    with httpx.Client(trust_env=False) as client, ThreadPoolExecutor(1) as thread:
        all_uploads = thread.submit(_run_at_once, uploads)
        while not all_uploads.done():
            start = time.perf_counter()
            client.get(f"{server.url}/api/v1/traces").raise_for_status()
            latencies.append(time.perf_counter() - start)
            time.sleep(0.01)
        all_uploads.result()
    return latencies


# -- clients that take little processor time ---------------------------------------------------------------------------


def put(url: str, path: Path) -> None:
    """Upload the whole file in one request."""
    parts, size = urlsplit(url), path.stat().st_size
    head = f"PUT {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection((str(parts.hostname), parts.port or 80)) as connection, path.open("rb") as file:
        connection.sendall(head.encode())
        connection.sendfile(file)
        _check_success(connection)


def tus(server: Server, path: Path) -> None:
    """Upload the file in chunks, each sent after the previous one is acknowledged."""
    size = path.stat().st_size
    upload_url = begin(server, size)
    parts = urlsplit(upload_url)
    with socket.create_connection((str(parts.hostname), parts.port or 80)) as connection, path.open("rb") as file:
        for offset in range(0, size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, size - offset)
            connection.sendall(chunk_head(upload_url, offset, length))
            connection.sendfile(file, offset, length)
            _check_success(connection)


def _check_success(connection: socket.socket) -> None:
    """Read the head of an answer; raise `OSError` unless its status is a success."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = connection.recv(1 << 16)
        if not received:
            raise OSError("the server closed the connection during an upload")
        answer += received
    if not answer.split(b" ", 2)[1].startswith(b"2"):
        raise OSError(f"an upload failed: {answer.decode()}")


@contextmanager
def _nginx(folder: Path) -> Iterator[str]:
    """Run an nginx that accepts uploads, and yield its URL; yield an empty string if nginx is not installed."""
    command = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if command is None:
        yield ""
        return
    prefix = folder / "nginx"
    for path in (folder, prefix, prefix / "incoming", prefix / "kept"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)  # if root starts nginx, its workers run as another user
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (prefix / "nginx.conf").write_text(_NGINX_CONFIG.format(folder=prefix, port=port))
    process = subprocess.Popen([command, "-p", str(prefix), "-c", str(prefix / "nginx.conf")])
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            if process.poll() is not None:
                raise OSError(f"nginx ended with status {process.returncode}")
            try:
                httpx.get(url, trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()

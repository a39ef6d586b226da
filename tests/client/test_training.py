from __future__ import annotations

import gzip
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import psutil
import pytest
import tracedock
import tracedock.training
from tracedock.training import Handler

from service.trace.rank import rank_in_name
from tests.cli.double import Server, problem
from tests.waiting import PATIENCE_S, until

BODY = b'{"traceEvents": []}\n'
LAUNCH = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEPID")
Make = Callable[..., Handler]

TRAINER = """
import os, signal, sys
import tracedock

class Profiler:
    def __init__(self, body):
        self.body = body
    def export_chrome_trace(self, path):
        with open(path, "wb") as file:
            file.write(self.body)

def body(number):
    return b'{"traceEvents": [], "number": %d}' % number

send = tracedock.handler(sys.argv[1], group="run", spool=sys.argv[2], nice=0)
"""


class Profiler:
    """Stands in for torch.profiler.profile."""

    def __init__(self, body: bytes | None = BODY, error: Exception | None = None) -> None:
        self.body, self.error, self.exports = body, error, 0

    def export_chrome_trace(self, path: str) -> None:
        self.exports += 1
        if self.body is not None:
            Path(path).write_bytes(self.body)
        if self.error:
            raise self.error


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCH:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def make(spool: Path) -> Iterator[Make]:
    made: list[Handler] = []

    def handler(url: str, **options: object) -> Handler:
        made.append(tracedock.handler(url, **({"spool": spool, "nice": 0} | options)))  # type: ignore[arg-type] # options vary
        return made[-1]

    yield handler
    for each in made:
        each.close(0)
        each._stop()


@contextmanager
def serving(double: Server) -> Iterator[Server]:
    thread = Thread(target=double.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield double
    double.shutdown()
    thread.join()
    double.server_close()


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URL of a server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def down() -> Iterator[str]:
    """The URL of a server that is not there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def trainer(program: str, url: str, spool: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER + program, url, spool], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def left(spool: Path) -> list[str]:
    """Return the names of the files of traces in the spool."""
    return sorted(path.name for path in spool.iterdir() if path.suffix != ".log")


def shippers(spool: Path) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "tracedock.shipper" in command and str(spool) in command and process.status() != psutil.STATUS_ZOMBIE:
            processes.append(process)
    return processes


def numbers(server: Server) -> list[bytes]:
    return sorted(gzip.decompress(request.body) for request in server.sent("PUT"))


def test_trace_of_each_cycle_arrives_compressed_in_the_group(server: Server, make: Make, spool: Path) -> None:
    send = make(server.url, group="my run")
    send(Profiler(BODY))
    send(Profiler(BODY + b" "))
    assert send.close(PATIENCE_S)
    assert numbers(server) == [BODY, BODY + b" "]
    assert [request.query["group"] for request in server.sent("PUT")] == ["my run"] * 2
    assert len({request.path for request in server.sent("PUT")}) == 2
    assert left(spool) == []
    assert send.pending() == 0


def test_torchrun_gives_group_and_rank(server: Server, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "llama"}.items():
        monkeypatch.setenv(name, value)
    with make(server.url) as send:
        send(Profiler())
    [request] = server.sent("PUT")
    assert request.query == {"group": "llama"}
    name = request.path.rpartition("/")[2]
    assert name.startswith("rank3of8.")
    assert rank_in_name(name) == 3


def test_ranks_of_a_run_without_an_id_are_told_how_to_get_a_group(
    server: Server, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "3")
    with make(server.url) as send:
        send(Profiler())
        send(Profiler(BODY + b" "))
    assert [request.query for request in server.sent("PUT")] == [{}, {}]
    assert caplog.text.count("--rdzv-id") == 1


def test_function_is_not_hidden_by_a_module() -> None:
    assert callable(tracedock.handler)


@pytest.mark.parametrize("server_is", ["down", "hanging"])
def test_call_returns_and_the_trace_stays_without_a_server(
    server_is: str, make: Make, spool: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    url = request.getfixturevalue(server_is)
    send = make(url)
    send(Profiler())
    assert send.pending() == 1
    until(lambda: any(name.endswith(".trace.json.gz") for name in left(spool)))
    assert not send.close(0.1)
    assert send.pending() == 1
    assert "traces not yet sent: 1" in caplog.text
    if server_is == "down":
        until(lambda: b"\n" in send._log_path.read_bytes())
        send(Profiler())
        assert "cannot reach a server" in caplog.text
        assert "Start the server" in caplog.text


def test_next_handler_sends_what_stayed_while_the_server_was_down(make: Make, spool: Path) -> None:
    absent = Server()
    port, url = absent.server_address[1], absent.url
    absent.server_close()
    send = make(url)
    send(Profiler())
    send._stop()
    assert send.pending() == 1
    with serving(Server(port)) as server:
        assert make(url).close(0)  # nothing of its own is pending
        again = make(url)
        until(lambda: left(spool) == [])
        assert again.close()
        assert numbers(server) == [BODY]


@pytest.mark.parametrize(("status", "advice"), [(401, "TRACEDOCK_TOKEN"), (507, "Make room on the server")])
def test_refusing_server_is_reported_once_and_the_trace_stays(
    server: Server, make: Make, spool: Path, status: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.script("GET", "/traces", *[problem(status, "refused", "Refused", "Not this way.")] * 1000)
    send = make(server.url)
    send(Profiler())
    until(lambda: b"\n" in send._log_path.read_bytes())
    for _ in range(2):
        assert not send.close(0)
    assert caplog.text.count("Not this way.") == 1
    assert advice in caplog.text
    assert len(left(spool)) == 2


@pytest.mark.parametrize("secret", ["token", "password"])
def test_secret_reaches_the_server_and_neither_disk_nor_command_line(
    server: Server, make: Make, spool: Path, secret: str
) -> None:
    server.script("GET", "/traces", *[problem(503, "later", "Later", "Later.")] * 1000)
    if secret == "token":
        send = make(server.url, token="tdk_secret")
    else:
        send = make(server.url.replace("//", "//me:tdk_secret@"))
    send(Profiler())
    until(lambda: b"\n" in send._log_path.read_bytes())
    authorization = server.requests[0].headers["authorization"]
    assert authorization == (
        "Bearer tdk_secret" if secret == "token" else f"Basic {b64encode(b'me:tdk_secret').decode()}"
    )
    assert b"tdk_secret" not in b"".join(path.read_bytes() for path in spool.iterdir())
    [shipper] = shippers(spool)
    assert "tdk_secret" not in " ".join(shipper.cmdline())


def test_full_spool_drops_the_newest_trace_and_says_so(
    down: str, make: Make, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    send = make(down, spool_bytes=100_000)
    body = b'{"traceEvents": ["' + os.urandom(30_000).hex().encode() + b'"]}'
    for _ in range(2):
        send(Profiler(body))
    dropped = Profiler(body)
    send._last_size = 100_000  # whatever the compression has freed
    send(dropped)
    assert dropped.exports == 0
    assert send.pending() in (1, 2)
    assert caplog.text.count("The new trace is dropped") == 1
    assert "spool_bytes" in caplog.text


def test_disk_without_room_for_another_trace_drops_it(
    down: str, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = make(down)
    send(Profiler())
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=len(BODY) - 1))
    dropped = Profiler()
    send(dropped)
    assert dropped.exports == 0
    assert send.pending() == 1
    assert f"its disk has {len(BODY) - 1} bytes left" in caplog.text


def test_trace_larger_than_the_spool_is_removed(
    server: Server, make: Make, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    send = make(server.url, spool_bytes=1000)
    send(Profiler(BODY * 100))
    assert send.pending() == 0
    assert left(spool) == []
    assert "more than spool_bytes=1,000" in caplog.text


@pytest.mark.parametrize(
    ("profiler", "reason"),
    [
        (Profiler(b'{"traceEvents": ['), "is truncated"),
        (Profiler(b""), "is truncated"),
        (Profiler(None), "has written no trace"),
        (Profiler(error=RuntimeError("no trace")), "no trace"),
        (Profiler(error=OSError(28, "No space left on device")), "No space left"),
    ],
)
def test_failed_export_is_logged_once_and_leaves_nothing(
    server: Server, make: Make, spool: Path, profiler: Profiler, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    send = make(server.url)
    send(profiler)
    send(profiler)
    assert profiler.exports == 2
    assert caplog.text.count(reason) == 1
    assert left(spool) == []


def test_unusable_folder_is_logged_and_nothing_is_raised(
    server: Server, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    send = make(server.url, spool=tmp_path / "file" / "spool")
    profiler = Profiler()
    send(profiler)
    assert profiler.exports == 0
    assert send.pending() == 0
    assert send.close(0)
    assert "TRACEDOCK_SPOOL" in caplog.text


def test_malformed_url_is_logged_and_the_trace_stays(make: Make, spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    send = make("localhost:8700")
    send(Profiler())
    assert not send.close()
    assert "is not the URL of a server" in caplog.text
    assert len(left(spool)) == 2


def test_missing_httpx_is_logged_and_the_trace_stays(
    server: Server, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "httpx.py").write_text("raise ImportError('no httpx here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    send = make(server.url)
    send(Profiler())
    assert not send.close()
    assert [record.message for record in caplog.records if "no httpx here" in record.message]
    assert send.pending() == 1


def test_interpreter_that_cannot_start_is_logged(
    server: Server, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    send = make(server.url)
    send(Profiler())
    assert send.pending() == 1
    assert "/nonexistent/python" in caplog.text


def test_background_process_has_the_lowest_priority_its_own_session_and_no_torch(
    server: Server, make: Make, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    server.script("GET", "/traces", *[problem(503, "later", "Later", "Later.")] * 1000)
    send = make(server.url, nice=19)
    send(Profiler())
    until(lambda: bool(server.requests))
    [shipper] = shippers(spool)
    assert shipper.nice() == 19
    assert os.getsid(shipper.pid) == shipper.pid
    assert os.sched_getscheduler(shipper.pid) == os.SCHED_IDLE


def test_killed_background_process_loses_nothing(server: Server, make: Make, spool: Path) -> None:
    server.script("GET", "/traces", *[problem(503, "later", "Later", "Later.")] * 2)
    send = make(server.url)
    send(Profiler())
    until(lambda: bool(server.requests))
    [shipper] = shippers(spool)
    shipper.kill()
    assert send._process
    send._process.wait()
    send(Profiler(BODY + b" "))
    assert send.close(PATIENCE_S)
    assert numbers(server) == [BODY, BODY + b" "]


def test_background_process_that_never_works_is_given_up(
    server: Server, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    send = make(server.url)
    send(Profiler())
    until(lambda: send.close(0.05) or "ended 5 times" in caplog.text)
    assert "upload --spool" in caplog.text
    assert send.pending() == 1


def test_killed_trainer_loses_only_what_was_not_written(server: Server, spool: Path) -> None:
    program = """
class Dying(Profiler):
    def export_chrome_trace(self, path):
        super().export_chrome_trace(path)
        os.kill(os.getpid(), signal.SIGKILL)

for number in range(3):
    send(Profiler(body(number)))
send(Dying(b'{"traceEvents": ['))
"""
    with trainer(program, server.url, spool) as training:
        assert training.wait(PATIENCE_S) == -signal.SIGKILL
    until(lambda: left(spool) == [])
    assert numbers(server) == [b'{"traceEvents": [], "number": %d}' % number for number in range(3)]
    until(lambda: shippers(spool) == [])


def test_trainer_does_not_wait_at_its_end_and_the_background_process_does_not_hold_its_output(
    hanging: str, spool: Path
) -> None:
    started = time.monotonic()
    with trainer("send(Profiler(body(1)))", hanging, spool) as training:
        output, complaint = training.communicate(timeout=PATIENCE_S)
    assert training.returncode == 0
    assert output == ""
    assert "traces not yet sent: 1" in complaint
    assert time.monotonic() - started < 30  # far less than the 600 s of the background process
    [shipper] = shippers(spool)
    shipper.kill()


def test_background_process_ends_in_time_after_its_trainer(hanging: str, spool: Path) -> None:
    program = "send._linger_s = 0.2; send._stop(); send(Profiler(body(1)))"
    with trainer(program, hanging, spool) as training:
        assert training.wait(PATIENCE_S) == 0
    until(lambda: shippers(spool) == [])
    assert any(".trace.json" in name for name in left(spool))


def test_two_trainers_share_a_spool(server: Server, spool: Path) -> None:
    programs = [
        f"for number in range({start}, {start + 5}): send(Profiler(body(number)))\nassert send.close({PATIENCE_S})"
        for start in (0, 5)
    ]
    trainers = [trainer(program, server.url, spool) for program in programs]
    for training in trainers:
        with training:
            _, complaint = training.communicate(timeout=PATIENCE_S)
            assert (training.returncode, complaint) == (0, "")
    assert numbers(server) == sorted(b'{"traceEvents": [], "number": %d}' % number for number in range(10))
    assert len({request.path for request in server.sent("PUT")}) == 10
    assert left(spool) == []


def test_forked_trainer_sends_under_names_of_its_own(server: Server, spool: Path) -> None:
    program = f"""
send(Profiler(body(0)))
pid = os.fork()
send(Profiler(body(1 if pid else 2)))
sent = send.close({PATIENCE_S})
if pid == 0:
    os._exit(not sent)
assert os.waitpid(pid, 0)[1] == 0 and sent
"""
    with trainer(program, server.url, spool) as training:
        _, complaint = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, complaint) == (0, "")
    assert numbers(server) == [b'{"traceEvents": [], "number": %d}' % number for number in range(3)]
    assert len({request.path for request in server.sent("PUT")}) == 3


def test_child_that_leaves_the_with_block_does_not_end_the_background_process(server: Server, spool: Path) -> None:
    program = f"""
with send:
    if os.fork() == 0:
        sys.exit()
    assert os.wait()[1] == 0
    assert send._process.poll() is None
    send(Profiler(body(0)))
    assert send.close({PATIENCE_S})
"""
    with trainer(program, server.url, spool) as training:
        _, complaint = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, complaint) == (0, "")
    assert numbers(server) == [b'{"traceEvents": [], "number": 0}']


def test_failure_in_a_with_block_is_not_delayed(hanging: str, make: Make) -> None:
    started = time.monotonic()

    def fail() -> None:
        with make(hanging) as send:
            send(Profiler())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert time.monotonic() - started < 30  # not the minute of a block that succeeds


def test_messages_are_of_one_logger(down: str, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        send = make(down)
        send(Profiler(error=RuntimeError("no")))
    assert {record.name for record in caplog.records} == {"tracedock"}

"""Workers run each task, wherever they are; what dies, dies alone."""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dask import config as dask_config

from service.fleet.workers import task as tasks
from service.fleet.workers.request import Tls, WorkersRequest
from service.fleet.workers.scheduler import address_of
from service.fleet.workers.start import workers_of
from service.fleet.workers.task import Workers
from service.trace.errors import (
    BadFleetRequest,
    ClusterUnavailable,
    NotJson,
    OtherVersion,
    TaskFailed,
    WorkerDied,
)
from tests.fleet.work import Fails, Kills, Square, WaitsFor
from tests.ports import free_port
from tests.waiting import until

DASK = Path(sys.executable).parent / "dask"

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def local() -> Iterator[Workers]:
    with workers_of(WorkersRequest(mode="local", count=2, patience_s=60)) as workers:
        yield workers


@pytest.fixture(params=["here", "local"])
def workers(request: pytest.FixtureRequest, local: Workers) -> Iterator[Workers]:
    if request.param == "local":
        yield local
    else:
        with workers_of(WorkersRequest(mode="here")) as here:
            yield here


@contextmanager
def dask(*arguments: str, log: Path = Path(os.devnull)) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process of Dask's own command line, which writes what it does to a log."""
    with (
        log.open("wb") as output,
        subprocess.Popen([DASK, *arguments], stdout=output, stderr=output, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # the test has killed it
                os.killpg(process.pid, signal.SIGKILL)


def scheduler(port: int, *more: str) -> Any:
    return dask("scheduler", "--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0", *more)


def worker(port: int, *more: str, scheme: str = "tcp", log: Path = Path(os.devnull)) -> Any:
    address = f"{scheme}://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--nthreads", "1"]
    return dask("worker", address, *options, *more, log=log)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_results_have_the_names_of_their_tasks(workers: Workers) -> None:
    results = dict(workers.results({f"task {number}": Square(number) for number in range(50)}))
    assert results == {f"task {number}": number**2 for number in range(50)}


def test_errors_are_results_and_others_are_done(workers: Workers) -> None:
    results = dict(workers.results({"known": Fails(True), "square": Square(3), "unknown": Fails(False)}))
    assert results["square"] == 9
    known, unknown = results["known"], results["unknown"]
    assert isinstance(known, NotJson)
    assert known.as_dict()["offset"] == 7
    assert isinstance(unknown, TaskFailed)
    assert "ZeroDivisionError: by zero" in unknown.detail


def test_nothing_to_do_is_done_at_once(workers: Workers) -> None:
    assert [*workers.results({})] == []


def test_task_that_kills_its_workers_fails_alone(local: Workers, tmp_path: Path) -> None:
    tasks: dict[str, Any] = {
        "kills": Kills(1000, str(tmp_path)),
        **{str(number): Square(number) for number in range(20)},
    }
    results = dict(local.results(tasks))
    died = results.pop("kills")
    assert isinstance(died, WorkerDied)
    assert "3 workers died at it" in died.detail
    assert results == {str(number): number**2 for number in range(20)}


def test_task_whose_worker_dies_once_runs_again(local: Workers, tmp_path: Path) -> None:
    assert dict(local.results({"kills": Kills(1, str(tmp_path))})) == {"kills": "survived"}


def test_worker_whose_restart_takes_long_is_not_given_up(tmp_path: Path) -> None:
    with (
        dask_config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        workers_of(WorkersRequest(mode="local", count=1, patience_s=20)) as workers,
    ):
        assert dict(workers.results({"kills": Kills(1, str(tmp_path))})) == {"kills": "survived"}


def test_tasks_that_are_left_are_cancelled_with_the_iterator(local: Workers, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    file = tmp_path / "go"
    blocking = {f"waits {number}": WaitsFor(str(file)) for number in range(2)}
    results = local.results({"first": Square(2), **blocking, **{str(n): Square(n, str(notes)) for n in range(20)}})
    assert next(results) == ("first", 4)
    results.close()
    file.touch()
    assert dict(local.results({"next": Square(5)})) == {"next": 25}
    assert len([*notes.iterdir()]) < 20


def test_worker_of_another_version_is_refused(local: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.fleet.workers.dask_workers.code_version", lambda: "Tracedock 0")
    with pytest.raises(OtherVersion, match="Tracedock 0"):
        dict(local.results({"square": Square(1)}))


def test_worker_keeps_to_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(tasks, "limit_processors", limits.append)
    monkeypatch.setattr("pyarrow.set_cpu_count", limits.append)
    monkeypatch.setattr(tasks, "load_machine_code", lambda: None)
    tasks._prepare.cache_clear()
    try:
        for _ in range(2):
            assert tasks.run_on_worker(pickle.dumps(Square(2)), tasks.code_version(), 3) == 4
    finally:
        tasks._prepare.cache_clear()
    assert limits == [3, 3], "once for a process"


# -- schedulers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (None, "needs the address"),
        ("node1:8786", "neither the address"),
        ("http://127.0.0.1:8786", "neither the address"),
        ("tcp://", "neither the address"),
        ("tcp://node1:8786", "has no TLS"),
        ("tcp://0.0.0.0:8786", "has no TLS"),
        ("tls://node1:8786", "needs certificates"),
    ],
)
def test_scheduler_that_anybody_could_use_is_refused(address: str | None, message: str) -> None:
    with pytest.raises(BadFleetRequest, match=message):
        address_of(WorkersRequest(mode="dask", scheduler=address))


def test_scheduler_file_has_the_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    request = WorkersRequest(mode="dask", scheduler=str(file))
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    assert address_of(request) == "tcp://127.0.0.1:8786"
    for broken in ("{", "{}", "[]"):
        file.write_text(broken)
        with pytest.raises(BadFleetRequest, match="is no scheduler file"):
            address_of(request)


def test_scheduler_that_is_not_there_is_an_error() -> None:
    request = WorkersRequest(mode="dask", scheduler=f"tcp://127.0.0.1:{free_port()}", patience_s=1)
    with pytest.raises(ClusterUnavailable, match="can't be reached"), workers_of(request):
        pass


@pytest.mark.system
def test_cluster_without_workers_is_waited_for_and_then_an_error() -> None:
    port, reasons = free_port(), list[str]()
    request = WorkersRequest(mode="dask", scheduler=f"tcp://127.0.0.1:{port}", patience_s=60, on_waiting=reasons.append)
    with scheduler(port):
        until(lambda: listens(port))
        no_worker = pytest.raises(ClusterUnavailable, match="has had no worker")
        with workers_of(replace(request, patience_s=2)) as workers, no_worker:
            dict(workers.results({"square": Square(1)}))
        assert set(reasons) == {"waiting for a worker"}
        with worker(port), workers_of(request) as workers:
            assert dict(workers.results({"square": Square(3)})) == {"square": 9}


@pytest.mark.system
def test_successor_of_a_killed_scheduler_gets_what_is_left(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "go"
    request = WorkersRequest(mode="dask", scheduler=f"tcp://127.0.0.1:{port}", patience_s=60)
    tasks: dict[str, Any] = {str(number): Square(number) for number in range(10)}
    with scheduler(port) as first, worker(port):
        until(lambda: listens(port))
        with workers_of(request) as workers:
            results = workers.results({**tasks, "waits": WaitsFor(str(file))})
            found = dict(next(results) for _ in range(10))
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
            with scheduler(port), worker(port):
                file.touch()
                rest = [*results]
    assert found == {str(number): number**2 for number in range(10)}
    assert rest == [("waits", "seen")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a certificate of it, one that has expired, and one of another authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for authority in ("ca", "other"):
        openssl(
            "req", "-x509", *key, "-days", "2", "-subj", f"/CN={authority}", "-keyout", f"{authority}.key",
            "-out", f"{authority}.pem",
        )  # fmt: skip
    for name, authority, days in (("node", "ca", "2"), ("expired", "ca", "-1"), ("foreign", "other", "2")):
        openssl("req", *key, "-subj", "/CN=node", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", days, "-out", f"{name}.pem",
        )  # fmt: skip
    return folder


def _files(folder: Path, name: str) -> Tls:
    return Tls(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")


@pytest.mark.system
def test_tls_cluster_takes_only_certificates_of_its_authority(certificates: Path) -> None:
    port = free_port()
    files = _files(certificates, "node")
    tls = ("--tls-ca-file", str(files.ca), "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    request = WorkersRequest(mode="dask", scheduler=f"tls://127.0.0.1:{port}", tls=files, patience_s=60)
    with scheduler(port, "--protocol", "tls", *tls), worker(port, *tls, scheme="tls"):
        until(lambda: listens(port))
        with workers_of(request) as workers:
            assert dict(workers.results({"square": Square(3)})) == {"square": 9}
        reasons = {
            "expired": r"expired\.pem expired on \d{4}-",
            "foreign": r"foreign\.pem is not signed by .*ca\.pem",
        }
        for name, reason in reasons.items():
            refused = replace(request, tls=_files(certificates, name), patience_s=3)
            with pytest.raises(ClusterUnavailable, match=f"can't be reached.*{reason}"), workers_of(refused):
                pass
    no_file = pytest.raises(BadFleetRequest, match=r"no file .*missing\.pem")
    with no_file, workers_of(replace(request, tls=_files(certificates, "missing"))):
        pass

"""The workers of each mode: started, or found, and closed."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import orjson

from service.fleet.workers.here import Here
from service.fleet.workers.task import Workers, distributed_version
from service.streaming.processors import usable_processors
from service.trace.errors import BadFleetRequest, ClusterUnavailable, FleetUnavailable, OtherVersion

if TYPE_CHECKING:
    from distributed import Client, Security

Mode = Literal["here", "local", "dask", "slurm"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""In this process, in processes of this machine, on a Dask cluster that runs, and on one that is started on Slurm."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_LIFETIME_MARGIN_S = 120
"""Seconds before the end of a Slurm job in which its worker takes no more tasks."""
_DASK = {
    "distributed.scheduler.allowed-failures": 2,
    "distributed.scheduler.worker-saturation": 1.0,  # a worker has only tasks that it runs, so a death has one suspect
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,  # our memory is native: there is nothing to spill
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 512 << 20,
}
"""Settings of the clusters that are started here; see https://distributed.dask.org/en/stable/configuration.html."""


@dataclass(frozen=True)
class Slurm:
    """Settings of a cluster that is started on Slurm.

    Attributes:
        partition: partition of the jobs; None for the default one.
        memory: memory of a job, as text with a unit.
        processors: processors of a job.
        lifetime_s: duration of a job; its worker ends before, and another one takes over.
        directives: further directives of the job script, without `#SBATCH`.
        folder: shared folder for job logs and for the certificates of this run.
    """

    partition: str | None = None
    memory: str = "4GB"
    processors: int = 1
    lifetime_s: int = 3600
    directives: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Tls:
    """Files of a cluster's certificates.

    Attributes:
        ca: certificate of the authority.
        cert: certificate of this client.
        key: its private key.
    """

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True)
class WorkersRequest:
    """Request for workers.

    Attributes:
        mode: where they run.
        count: number of workers that are started; None for one per processor.
        scheduler: address of a scheduler, or path of its scheduler file.
        tls: certificates for that scheduler.
        memory: limit of a local worker's memory, as text with a unit; None for its share of the machine.
        slurm: settings of a cluster on Slurm.
        patience_s: seconds to wait for a scheduler and for a worker.
        on_waiting: called with the reason while there is no worker.
    """

    mode: Mode = "local"
    count: int | None = None
    scheduler: str | None = None
    tls: Tls | None = None
    memory: str | None = None
    slurm: Slurm = field(default_factory=Slurm)
    patience_s: float = 300.0
    on_waiting: Callable[[str], object] = lambda _: None


@contextmanager
def workers_of(request: WorkersRequest) -> Iterator[Workers]:
    """Start or find workers, and lend them.

    Raises:
        BadFleetRequest: the scheduler's address is missing, or is open to others without TLS.
        ClusterUnavailable: the scheduler can't be reached, or Slurm refuses.
        FleetUnavailable: packages are missing.
        OtherVersion: the scheduler has another version.
    """
    if request.mode == "here":
        yield Here()
        return
    _require_packages("distributed", *(["dask_jobqueue"] if request.mode == "slurm" else []))
    import dask  # noqa: PLC0415 - optional

    from service.fleet.workers.dask_workers import DaskWorkers  # noqa: PLC0415 - needs packages that are optional

    with dask.config.set(_DASK if request.mode != "dask" else {}):
        cluster = _started(request)
        try:
            workers = DaskWorkers(
                partial(_connected, request, cluster), processors=_share(request), patience_s=request.patience_s,
                on_waiting=request.on_waiting,
            )  # fmt: skip
            try:
                yield workers
            finally:
                workers.close()
        finally:
            if cluster is not None:
                cluster.close()


def _require_packages(*names: str) -> None:
    if missing := [name for name in names if find_spec(name) is None]:
        raise FleetUnavailable(
            f"{' and '.join(missing)} is not installed: install tracedock-server[fleet], for example"
            " `pip install '.[fleet]'`, or use the mode `here`."
        )


def _share(request: WorkersRequest) -> int:
    """Return the number of processors for each worker."""
    if request.mode == "slurm":
        return request.slurm.processors
    return max(1, usable_processors() // (request.count or usable_processors())) if request.mode == "local" else 1


def _started(request: WorkersRequest) -> Any:
    """Start a cluster; None for one that runs already."""
    if request.mode == "dask":
        return None
    from distributed import Security  # noqa: PLC0415 - optional

    common = {
        "security": Security.temporary(),  # other users of the machine can reach loopback, too
        "protocol": "tls://",
        "silence_logs": "CRITICAL",
    }
    try:
        if request.mode == "local":
            from distributed import LocalCluster  # noqa: PLC0415 - optional

            return LocalCluster(
                n_workers=request.count or usable_processors(), threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
                memory_limit=request.memory or "auto", **common,
            )  # fmt: skip
        return _on_slurm(request, common)
    except (OSError, RuntimeError, TimeoutError) as error:
        raise ClusterUnavailable(f"The workers can't be started: {error}") from error


def _on_slurm(request: WorkersRequest, common: dict[str, Any]) -> Any:
    from dask_jobqueue import SLURMCluster  # noqa: PLC0415 - optional

    slurm = request.slurm
    slurm.folder.mkdir(parents=True, exist_ok=True)
    lifetime = max(slurm.lifetime_s - _LIFETIME_MARGIN_S, slurm.lifetime_s // 2)
    cluster = SLURMCluster(
        queue=slurm.partition, cores=1, processes=1, job_cpu=slurm.processors, memory=slurm.memory,
        walltime=_duration(slurm.lifetime_s), job_extra_directives=list(slurm.directives),
        python=shlex.quote(sys.executable),
        log_directory=str(slurm.folder), shared_temp_directory=str(slurm.folder), death_timeout=_LIFETIME_MARGIN_S,
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--lifetime", f"{lifetime}s", "--dashboard-address", "127.0.0.1:0"],
        **common,
    )  # fmt: skip
    cluster.adapt(minimum_jobs=1, maximum_jobs=request.count or 1, interval="1s", wait_count=30)
    return cluster


def _duration(seconds: int) -> str:
    """Return a duration as Slurm reads it: hours, minutes and seconds."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _connected(request: WorkersRequest, cluster: Any) -> "Client":
    """Connect to a cluster."""
    from distributed import Client  # noqa: PLC0415 - optional

    address, security = (cluster, None) if cluster is not None else (address_of(request), _security(request))
    try:
        client = Client(address, security=security, timeout=request.patience_s, set_as_default=False)
    except (OSError, TimeoutError, RuntimeError) as error:
        where = "the started cluster" if cluster is not None else address
        hint = "" if request.tls is None else " A certificate may have expired, or be of another authority."
        raise ClusterUnavailable(f"{where} can't be reached: {_innermost(error)}.{hint}") from error
    found = client.get_versions()["scheduler"]["packages"]["distributed"]
    if found != distributed_version():
        client.close()
        raise OtherVersion(f"The scheduler has distributed {found}, and this process {distributed_version()}.")
    return client


def address_of(request: WorkersRequest) -> str:
    """Return the address of the scheduler that a request names.

    Raises:
        BadFleetRequest: there is none, or others could run code on its workers.
    """
    if not request.scheduler:
        raise BadFleetRequest("The mode `dask` needs the address of a scheduler, or the path of its scheduler file.")
    address = request.scheduler
    if "://" not in address and (path := Path(address).expanduser()).is_file():
        try:
            address = str(orjson.loads(path.read_bytes())["address"])
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise BadFleetRequest(f"{path} is no scheduler file: {error!r}.") from error
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in {"tcp", "tls"} or not rest:
        raise BadFleetRequest(
            f"{address} is neither the address of a scheduler, like tls://HOST:8786, nor a scheduler file."
        )
    if scheme == "tcp" and rest.rpartition(":")[0] not in _LOOPBACK:
        raise BadFleetRequest(
            f"{address} has no TLS: anybody who can reach it can run code on its workers. Start scheduler and workers"
            " with --tls-ca-file, --tls-cert and --tls-key."
        )
    if scheme == "tls" and request.tls is None:
        raise BadFleetRequest(f"{address} needs certificates: name an authority, a certificate and a key.")
    return address


def _security(request: WorkersRequest) -> "Security | None":
    from distributed import Security  # noqa: PLC0415 - optional

    if request.tls is None:
        return None
    files = {"tls_ca_file": request.tls.ca, "tls_client_cert": request.tls.cert, "tls_client_key": request.tls.key}
    for path in files.values():
        if not path.is_file():
            raise BadFleetRequest(f"There is no file {path}.")
    return Security(require_encryption=True, **{name: str(path) for name, path in files.items()})


def _innermost(error: BaseException) -> str:
    """Return the text of the error that has caused others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__

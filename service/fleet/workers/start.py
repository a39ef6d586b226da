"""The workers of each mode: started, or found, and closed."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from service.fleet.workers.here import Here
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.scheduler import address_of, require_packages, require_version, security_of, unreachable
from service.fleet.workers.task import Workers
from service.streaming.processors import usable_processors
from service.trace.errors import ClusterUnavailable, OtherVersion

if TYPE_CHECKING:
    from distributed import Client

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
_LOCAL = _DASK | {"distributed.deploy.lost-worker-timeout": "1 day"}
"""Settings of local workers. After that time, a worker that is restarted is given up; by default after 15 s."""


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
    require_packages("distributed", *(["dask_jobqueue"] if request.mode == "slurm" else []))
    import dask  # noqa: PLC0415 - optional

    from service.fleet.workers.dask_workers import DaskWorkers  # noqa: PLC0415 - needs packages that are optional

    with dask.config.set({"dask": {}, "local": _LOCAL}.get(request.mode, _DASK)):
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

    address, security = (cluster, None) if cluster is not None else (address_of(request), security_of(request))
    try:
        client = Client(address, security=security, timeout=request.patience_s, set_as_default=False)
    except (OSError, TimeoutError, RuntimeError) as error:
        raise unreachable(request, "the started cluster" if cluster is not None else address, error) from error
    try:
        require_version(client.get_versions())
    except OtherVersion:
        client.close()
        raise
    return client

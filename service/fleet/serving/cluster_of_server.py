"""The cluster that a server uses, as its settings name it."""

from dataclasses import dataclass
from pathlib import Path

from service.fleet.workers.request import Tls, WorkersRequest
from service.fleet.workers.scheduler import check_scheduler
from service.settings import Settings
from service.trace.errors import BadFleetRequest


@dataclass(frozen=True)
class ClusterOfServer:
    """The cluster that a server uses.

    Attributes:
        scheduler: address of the scheduler, or path of its scheduler file.
        folder: the server's data folder.
        tls: certificates for the scheduler.
        patience_s: seconds to wait for the scheduler and for a worker.
        processors: number of processors that a worker process may use.
    """

    scheduler: str
    folder: Path
    tls: Tls | None
    patience_s: float
    processors: int

    def request(self) -> WorkersRequest:
        """Return the request for its workers."""
        return WorkersRequest("dask", scheduler=self.scheduler, tls=self.tls, patience_s=self.patience_s)


def cluster_of_server(settings: Settings, folder: Path) -> ClusterOfServer:
    """Return the cluster that settings name.

    Args:
        settings: the settings.
        folder: the data folder.

    Raises:
        BadFleetRequest: the settings contradict each other, or others could run code on the workers.
        FleetUnavailable: Dask is not installed.
    """
    files = (settings.dask_tls_ca, settings.dask_tls_cert, settings.dask_tls_key)
    tls = None
    if any(files):
        ca, cert, key = files
        if not (ca and cert and key):
            raise BadFleetRequest("TRACEDOCK_DASK_TLS_CA, _CERT and _KEY go together: set all three.")
        tls = Tls(ca, cert, key)
    cluster = ClusterOfServer(settings.dask_scheduler, folder, tls, settings.dask_wait_s, settings.dask_processors)
    check_scheduler(cluster.request())
    return cluster

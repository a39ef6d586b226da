"""Requests for workers: where they run, and what they may use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Mode = Literal["here", "local", "dask", "slurm"]
"""In this process, in processes of this machine, on a Dask cluster that runs, and on one that is started on Slurm."""


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

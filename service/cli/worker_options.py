"""Options of the workers that read and ask many traces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from service.cli.commands import WORKER

if TYPE_CHECKING:
    from service.fleet.workers.request import WorkersRequest

_LIFETIME_MINUTES, _FOLDER = 60, Path("tracedock-jobs")


class Mode(StrEnum):
    """Places where the workers run."""

    here = "here"
    local = "local"
    dask = "dask"
    slurm = "slurm"


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=WORKER, **settings)


ModeOption = Annotated[
    Mode,
    _option(
        help="Where the work is done: `here` is this process, `local` are processes of this machine, `dask` is a "
        "cluster that runs already, `slurm` starts one."
    ),
]
CountOption = Annotated[
    int | None, _option("--workers", metavar="N", min=1, help="Workers to start; by default one per processor.")
]
SchedulerOption = Annotated[
    str | None,
    _option(
        envvar="TRACEDOCK_DASK_SCHEDULER",
        metavar="ADDRESS|FILE",
        help="For `dask`: address of the scheduler, or its scheduler file.",
    ),
]
TlsOption = Annotated[
    tuple[Path, Path, Path] | None,
    _option(
        metavar="CA CERT KEY", help="For `dask`: files of the authority, of this client's certificate and its key."
    ),
]
MemoryOption = Annotated[
    str | None,
    _option(metavar="SIZE", help="Memory of a worker, like 4GB; a local one has by default its share of the machine."),
]
PartitionOption = Annotated[str | None, _option(metavar="NAME", help="For `slurm`: partition of the jobs.")]
ProcessorsOption = Annotated[int, _option(metavar="N", min=1, help="For `slurm`: processors of a worker.")]
LifetimeOption = Annotated[
    int, _option(metavar="MINUTES", min=2, help="For `slurm`: duration of a job. Another one takes over from it.")
]
DirectiveOption = Annotated[
    list[str] | None,
    _option("--sbatch", metavar="OPTION", help="For `slurm`: an option of sbatch, like --account=vision (repeatable)."),
]
FolderOption = Annotated[
    Path, _option("--job-folder", metavar="FOLDER", help="For `slurm`: shared folder for job logs and certificates.")
]
PatienceOption = Annotated[
    float, _option("--wait", metavar="SECONDS", min=0, help="Wait so long for the scheduler, and for a first worker.")
]


@dataclass(frozen=True)
class WorkerOptions:
    """Values of the options."""

    mode: Mode
    count: int | None
    memory: str | None
    scheduler: str | None
    tls: tuple[Path, Path, Path] | None
    partition: str | None
    processors: int
    lifetime: int
    sbatch: tuple[str, ...]
    job_folder: Path
    wait: float

    def request(self, on_waiting: Callable[[str], object] = lambda _: None) -> WorkersRequest:
        """Return the request for workers.

        Args:
            on_waiting: called with the reason while there is no worker.
        """
        from service.fleet.workers.request import Slurm, Tls, WorkersRequest  # noqa: PLC0415 - slow to import

        return WorkersRequest(
            mode=self.mode.value, count=self.count, scheduler=self.scheduler,
            tls=None if self.tls is None else Tls(*self.tls), memory=self.memory,
            slurm=Slurm(
                self.partition, self.memory or "4GB", self.processors, 60 * self.lifetime, self.sbatch,
                self.job_folder.absolute(),
            ),
            patience_s=self.wait, on_waiting=on_waiting,
        )  # fmt: skip


def _options(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    mode: ModeOption = Mode.local,
    count: CountOption = None,
    memory: MemoryOption = None,
    scheduler: SchedulerOption = None,
    tls: TlsOption = None,
    partition: PartitionOption = None,
    processors: ProcessorsOption = 1,
    lifetime: LifetimeOption = _LIFETIME_MINUTES,
    sbatch: DirectiveOption = None,
    job_folder: FolderOption = _FOLDER,
    wait: PatienceOption = 300.0,
) -> WorkerOptions:
    """Return the values of the options.

    Raises:
        typer.BadParameter: an option belongs to another mode.
    """
    of_mode = {
        "--workers": (count is not None, {Mode.local, Mode.slurm}),
        "--memory": (memory is not None, {Mode.local, Mode.slurm}),
        "--tls": (tls is not None, {Mode.dask}),
        "--partition": (partition is not None, {Mode.slurm}),
        "--processors": (processors != 1, {Mode.slurm}),
        "--lifetime": (lifetime != _LIFETIME_MINUTES, {Mode.slurm}),
        "--sbatch": (bool(sbatch), {Mode.slurm}),
        "--job-folder": (job_folder != _FOLDER, {Mode.slurm}),
    }
    for option, (is_given, modes) in of_mode.items():
        if is_given and mode not in modes:
            named = " and ".join(f"--mode {name.value}" for name in Mode if name in modes)
            raise typer.BadParameter(f"only for {named}", param_hint=option)
    return WorkerOptions(
        mode, count, memory, scheduler, tls, partition, processors, lifetime, tuple(sbatch or ()), job_folder, wait
    )


def working(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of workers to a command; their values become its argument ``options``."""
    own = inspect.signature(command, eval_str=True)
    added = inspect.signature(_options, eval_str=True).parameters

    @wraps(command)
    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in added}
        command(**arguments, options=_options(**values))

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "options"]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*kept, *added.values())]
    runner = cast("Any", run)
    runner.__signature__ = own.replace(parameters=parameters)
    runner.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run

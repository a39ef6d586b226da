"""Tasks: the work that workers do, and how a worker runs it."""

import os
import pickle
import platform
import traceback
from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from service.analysis.kept_answers import code_digest
from service.fleet.workers.scheduler import distributed_version
from service.jobs.machine_code import load_machine_code
from service.streaming.processors import limit_processors
from service.trace.errors import OtherVersion, TaskFailed, TracedockError

_TRACEBACK_LINES = 6  # of an error that is not known


class Task(Protocol):
    """Work that may run in another process, there more than once, and there at the same time as another attempt.

    It can be pickled, takes paths, URLs and small values, and returns a small result.
    """

    def run(self) -> Any:
        """Do the work, and return its result; raises a `TracedockError`."""


class Workers(Protocol):
    """Processes that run tasks."""

    @property
    def count(self) -> int:
        """Number of tasks that run at a time now; 0 as long as there are no workers."""

    def results(self, tasks: Mapping[str, Task]) -> Generator[tuple[str, Any], None, None]:
        """Run tasks, and yield the name of each with its result, or with the `TracedockError` that it failed with.

        They come in the order in which they end. Closing the iterator cancels the tasks that are left.

        Args:
            tasks: the tasks by name.

        Raises:
            ClusterUnavailable: there is no scheduler or no worker.
            OtherVersion: a worker has other code.
        """


def outcome_of(task: Task) -> Any:
    """Run a task, and return its result or its error."""
    try:
        return task.run()
    except TracedockError as error:
        return error
    except Exception as error:  # noqa: BLE001 - one trace may not end the work on all others
        lines = "".join(traceback.format_exception(error)[-_TRACEBACK_LINES:])
        return TaskFailed(f"{type(error).__name__}: {error}", traceback=lines)


def run_on_worker(content: bytes, wanted: str, processors: int) -> Any:
    """Run a pickled task on a worker, and return its result or its error.

    Args:
        content: the task.
        wanted: `code_version` where the task was made.
        processors: number of processors that this process may use.
    """
    if (own := code_version()) != wanted:
        return OtherVersion(f"The worker {worker_name()} has {own}, and {wanted} has made its task.")
    _prepare(processors)
    return outcome_of(pickle.loads(content))  # noqa: S301 - whoever may send tasks may run code: that is their purpose


@cache
def code_version() -> str:
    """Return the versions of what a task needs; a digest stands for our code and the libraries of its results."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"Tracedock {code_digest()}, Python {python}, distributed {distributed_version()}"


def worker_name() -> str:
    """Return the host and the process of this worker."""
    return f"{platform.node()}:{os.getpid()}"


@cache
def _prepare(processors: int) -> None:
    """Load the code of an ingest once, and keep to the share of the machine."""
    limit_processors(processors)
    pa.set_cpu_count(processors)
    load_machine_code()

"""The workers of a Dask cluster."""

import pickle
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed
from distributed.client import FutureCancelledError

from service.fleet.workers.absence import Absence
from service.fleet.workers.task import Task, code_version, run_on_worker
from service.trace.errors import ClusterUnavailable, OtherVersion, TaskFailed, TracedockError, WorkerDied

_SENT_MAX = 2000
"""Maximum number of tasks that the scheduler has at a time; each costs it about 1 kB."""
_POLL_S = 0.02
_CHECK_S = 1.0  # between two questions for the workers, whose answer is long on a large cluster
_GATHER_S = 60.0
LOST = (FutureCancelledError, OSError, TimeoutError)
"""Errors of a scheduler that is lost."""


class DaskWorkers:
    """Runs tasks on a Dask cluster.

    A task whose worker dies runs again on another one. Dask gives it up after some deaths, which may be the fault of
    a task beside it. So such tasks run again in the end, one at a time. If the scheduler is lost, with all that it
    knows, the tasks without a result are sent again to its successor.

    Args:
        connect: returns a client of the cluster, and raises `ClusterUnavailable`.
        processors: number of processors that a worker process may use.
        patience_s: seconds to wait for a scheduler and for a worker.
        on_waiting: called with the reason while there is no worker.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        *,
        processors: int = 1,
        patience_s: float,
        on_waiting: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._client = connect()
        self._processors = processors
        self._patience_s = patience_s
        self._on_waiting = on_waiting
        self._absence = Absence(2 * _CHECK_S)

    @property
    def count(self) -> int:
        """Number of tasks that run at a time now."""
        try:
            workers = self._client.nthreads() if self._client.status == "running" else {}
        except LOST:
            return 0
        return sum(workers.values())

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def results(self, tasks: Mapping[str, Task]) -> Generator[tuple[str, Any], None, None]:
        """Run tasks; see `Workers`."""
        suspects = []
        for name, outcome in self._results(tasks):
            if isinstance(outcome, WorkerDied):
                suspects.append(name)
            else:
                yield name, outcome
        for name in suspects:
            yield from self._results({name: tasks[name]})

    def _results(self, tasks: Mapping[str, Task]) -> Iterator[tuple[str, Any]]:
        left = dict.fromkeys(tasks)
        while left:
            for name, outcome in self._sent({name: tasks[name] for name in left}):
                del left[name]
                yield name, outcome
            if left:
                self._reconnect()

    def _sent(self, tasks: Mapping[str, Task]) -> Iterator[tuple[str, Any]]:
        """Send tasks, and yield outcomes until all are there or the scheduler is lost."""
        names: dict[Future, str] = {}
        unsent = iter(tasks.items())
        completed = as_completed(loop=self._client.loop)
        self._absence = Absence(2 * _CHECK_S)
        try:
            while True:
                sent = self._send(dict(islice(unsent, _SENT_MAX - len(names))))
                names.update(sent)
                completed.update(sent)
                if not names:
                    return
                batch = completed.next_batch(block=False)
                outcomes = self._gathered(batch) if batch else {}
                if outcomes is None or self._client.status != "running":
                    return
                for future, outcome in outcomes.items():
                    yield names.pop(future), outcome
                if not batch:
                    self._require_workers()
                    time.sleep(_POLL_S)
        finally:
            with suppress(*LOST):  # the scheduler is lost, and with it what it would cancel
                self._client.cancel([*names])

    def _send(self, tasks: Mapping[str, Task]) -> dict[Future, str]:
        if not tasks:
            return {}
        contents = [pickle.dumps(task) for task in tasks.values()]
        keys = [f"{type(task).__name__}-{uuid.uuid4().hex}" for task in tasks.values()]
        wanted, processors = code_version(), self._processors
        futures = self._client.map(
            run_on_worker, contents, wanted=wanted, processors=processors, key=keys, pure=False, retries=0
        )
        return dict(zip(futures, tasks, strict=True))

    def _gathered(self, batch: list[Future]) -> dict[Future, Any] | None:
        """Return the outcomes of futures that have ended; None if the scheduler is lost.

        Raises:
            OtherVersion: a worker has other code.
        """
        finished = [future for future in batch if future.status == "finished"]
        try:
            outcomes = dict(zip(finished, self._client.gather(finished, asynchronous=False), strict=True))
            for future in batch:
                if future.status == "error":
                    outcomes[future] = task_error(future.exception(timeout=_GATHER_S))
        except LOST:
            return None
        if len(outcomes) < len(batch):
            return None
        for outcome in outcomes.values():
            if isinstance(outcome, OtherVersion):
                raise outcome
        return outcomes

    def _require_workers(self) -> None:
        """Raise `ClusterUnavailable` if there has been no worker for long."""
        if self._absence.since_check_s < _CHECK_S:
            return
        workers = self.count
        waited_s = self._absence.check(workers)
        if waited_s > self._patience_s:
            raise ClusterUnavailable(f"The cluster has had no worker for {waited_s:.0f} s.")
        if not workers:
            self._on_waiting("waiting for a worker")

    def _reconnect(self) -> None:
        """Connect to the scheduler's successor."""
        self._on_waiting("waiting for the scheduler")
        with suppress(*LOST):
            self._client.close(timeout=1)
        self._client = self._connect()


def task_error(error: BaseException) -> TracedockError:
    """Return what an error of Dask says about a task."""
    if isinstance(error, KilledWorker):
        return WorkerDied(f"{error.allowed_failures + 1} workers died at it, the last one at {error.last_worker}.")
    if isinstance(error, ModuleNotFoundError):
        return OtherVersion(f"A worker has no {error.name}: install tracedock-server[fleet] where workers run.")
    return TaskFailed(f"{type(error).__name__}: {error}")

"""A task of the server, as a worker of a cluster runs it."""

import time
from dataclasses import dataclass
from pathlib import Path

from distributed import Worker, get_worker

from service.fleet.workers.task import worker_name
from service.jobs.children.encoding import decode, encode
from service.jobs.children.tasks import task_type
from service.streaming.source import Progress
from service.trace.errors import Cancelled, DataFolderMissing

PROGRESS_EVERY_S = 0.5
"""Minimum number of seconds between two reports of a task: all of them pass the scheduler."""
TOPIC = "tracedock-progress-{client}"
"""Topic of the reports for a client, by its id."""


@dataclass(frozen=True)
class ServerTask:
    """A task with one result; see `service.jobs.children.tasks`.

    Attributes:
        task: name of its class.
        content: JSON of its fields.
        folder: the server's data folder, which the worker must see at the same path.
        topic: topic of its reports.
        call_id: number of the server's call.
    """

    task: str
    content: bytes
    folder: str
    topic: str
    call_id: int

    def run(self) -> bytes:
        """Run the task, and return the JSON of its result.

        Raises:
            DataFolderMissing: the worker does not see the data folder.
            Cancelled: the server has dropped the call.
            TracedockError: the task has failed.
        """
        check_folder(self.folder)
        task = decode(task_type(self.task), self.content)
        return encode(task.run(ProgressReporter(get_worker(), self.topic, self.call_id)))


def check_folder(folder: str) -> None:
    """Raise `DataFolderMissing` unless this process sees the server's data folder."""
    if not Path(folder, "lock").exists():
        raise DataFolderMissing(
            f"The worker {worker_name()} does not see the server's data folder: it must lie on a file system that all"
            " workers share, at the same path."
        )


class ProgressReporter:
    """Sends the progress of a task to the server, and ends a task that is no longer wanted.

    Args:
        worker: the worker that runs the task in this thread.
        topic: topic of the reports.
        call_id: number of the server's call.
    """

    def __init__(self, worker: Worker, topic: str, call_id: int) -> None:
        self._worker, self._key = worker, worker.get_current_task()
        self._topic, self._call_id = topic, call_id
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        """Report the progress, at most every `PROGRESS_EVERY_S` seconds; raises `Cancelled`."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PROGRESS_EVERY_S
        state = self._worker.state.tasks.get(self._key)
        if state is None or state.state == "cancelled":  # the scheduler wants no result, and Dask can't stop a thread
            raise Cancelled("The server no longer needs the result.")
        self._worker.log_event(self._topic, {"id": self._call_id, "progress": vars(progress)})

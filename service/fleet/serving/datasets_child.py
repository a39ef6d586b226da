"""The child that watches datasets, and answers questions about them. It keeps what it has read until it changes."""

import os
import shutil
import threading
from pathlib import Path

from service.analysis.table import Page
from service.fleet.questions.catalogue import question_of
from service.fleet.questions.question import ask
from service.fleet.serving.watched_dataset import WatchedDataset
from service.jobs.children.answering import Answering, Place, QueueOptions
from service.jobs.children.channel import ServerChannel
from service.jobs.children.encoding import encode
from service.jobs.children.tasks.datasets import DatasetCall, DatasetTask, FleetQuestionTask
from service.store.export import spill_of

_QUEUES = {"questions": QueueOptions(2, 2), "states": QueueOptions(4, 4)}
"""States have threads of their own, so that the progress does not wait for questions."""


class DatasetAnswers:
    """Answers all calls.

    Args:
        scratch: folder for copies of facts, and for what does not fit into memory.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._watched: dict[str, WatchedDataset] = {}
        self._adding = threading.Lock()

    def answer(self, task: DatasetCall) -> bytes:
        """Return the JSON of a `DatasetReport`, or the answer to a question in its form.

        Raises:
            BadFleetRequest: the question, its run or its parameters are unknown or invalid.
            DatasetUnavailable: the dataset can't be read.
        """
        with self._adding:
            watched = self._watched.get(task.url) or WatchedDataset(task.url, self._scratch)
            self._watched[task.url] = watched
        if isinstance(task, DatasetTask):
            return encode(watched.report(task.failures, task.after))
        with watched.facts() as facts:
            answer = ask(question_of(task.question), facts, task.run, task.parameters)
        return answer.form(task.form, task.tables, Page(task.limit, task.offset))


def _place_of(task: DatasetCall) -> Place:
    return Place("questions" if isinstance(task, FleetQuestionTask) else "states")


def main(channel: ServerChannel, spill: str) -> int:
    """Answer calls until the server closes the connection, and return the exit status.

    Args:
        channel: the channel to the server.
        spill: the path next to which the child writes; the server removes what it has written.
    """
    scratch = spill_of(Path(spill), os.getpid())
    scratch.mkdir(parents=True)
    try:
        Answering(channel, _QUEUES, _place_of, DatasetAnswers(scratch).answer).serve()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0

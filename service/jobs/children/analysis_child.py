"""The child that answers questions about traces, several at a time. It caches the data that it has read of traces."""

import importlib
import os
import threading
from pathlib import Path

import pyarrow as pa

import service.analysis.answers
import service.rendering.initial_view
import service.rendering.slice_details  # noqa: F401 - loaded before the first call, like the answers
from service.analysis.catalogue import QUESTIONS
from service.analysis.reading_cache import ReadingCache
from service.jobs.children.answering import Answering, Place, QueueOptions
from service.jobs.children.channel import ServerChannel
from service.jobs.children.kinds import LATE
from service.jobs.children.tasks.questions import AnswerTask, OpeningTask, Question, SliceTask
from service.store.export import spill_of

AT_ONCE, PER_CLIENT = 3, 2
"""Maximum number of concurrent calls: in total, and for one client, so that no client delays all others.

Concurrent calls share the cached data. A call waits for data that another call is reading.
"""
_QUEUES = {
    "questions": QueueOptions(AT_ONCE, PER_CLIENT),
    "openings": QueueOptions(1, PER_CLIENT),
    "views": QueueOptions(1, PER_CLIENT),
}
"""Openings, slices and overviews have own threads, so that a click, a zoom or a pan does not wait for questions."""


def _place_of(task: Question) -> Place:
    """Return the place of a question. Costly questions have a low turn, so that they go first."""
    if isinstance(task, OpeningTask | SliceTask):
        return Place("openings")
    question = QUESTIONS.get(task.question) if isinstance(task, AnswerTask) else None
    if _is_view(task) or question is None:
        return Place("views" if _is_view(task) else "questions")
    return Place("questions", -question.cost, question.is_large)


def _is_view(task: Question) -> bool:
    """Return whether a task answers a view of a page, which a file of the trace's columns answers at once."""
    return isinstance(task, AnswerTask) and task.question == "overview" and len(task.traces) == 1


def _preload() -> None:
    for module in LATE:
        importlib.import_module(module)


def main(channel: ServerChannel, spill: str) -> int:
    """Answer calls until the server closes the connection, and return the exit status.

    Args:
        channel: the channel to the server.
        spill: the path next to which the child writes data that does not fit into memory.
    """
    readings = ReadingCache(spill_of(Path(spill), os.getpid()))

    def answer(task: Question) -> bytes:
        return task.run(readings)

    # calls malloc_trim(3): the heap would keep what each answer needed for itself, up to a third of the memory
    answering = Answering(channel, _QUEUES, _place_of, answer, pa.default_memory_pool().release_unused)
    threading.Thread(target=_preload).start()
    answering.serve()
    return 0

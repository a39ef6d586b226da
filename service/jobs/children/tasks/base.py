"""Base class of tasks with one result."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from service.streaming.source import Progress

R = TypeVar("R")

OnProgress = Callable[[Progress], object]


def ignore(_: Progress) -> None:
    """Ignore the progress of a task."""


class Task(ABC, Generic[R]):
    """A task with one result."""

    @classmethod
    @abstractmethod
    def result_type(cls) -> type[R]:
        """Return the type of the result, which is needed to decode it."""

    @abstractmethod
    def run(self, on_progress: OnProgress = ignore) -> R:
        """Run the task.

        Args:
            on_progress: called with the progress from time to time.

        Raises:
            TracedockError: the task has failed.
        """

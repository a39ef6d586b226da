"""Tasks: picklable calls on paths with typed arguments.

The server sends tasks to its children. Any other process can run them, too: a task needs neither the server nor the
catalog, only the paths that it names. `run` imports the code of the task, which the server does without.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "IngestTask": "ingest",
    "SplitTask": "derive",
    "PlanTask": "derive",
    "MergeTask": "derive",
    "OverlayTask": "derive",
    "ExportTask": "documents",
    "RenderTask": "documents",
    "AnswerTask": "questions",
    "ApplicableTask": "questions",
    "OpeningTask": "questions",
}
"""The module of each task: a child imports those of its own tasks alone."""

TASK_NAMES = tuple(_MODULES)


def task_type(name: str) -> type[Any]:
    """Return the class of a task by its name.

    Raises:
        KeyError: no task has that name.
    """
    task: type[Any] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return task

"""Tasks: calls with typed arguments, encoded as JSON. Files are passed as paths.

The server sends tasks to its children. Any other process can run them, too: a task needs neither the server nor the
catalog, only the files at its paths. `run` imports the code of the task, so that the server need not load it.
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
    "PerfettoTask": "documents",
    "RenderTask": "documents",
    "OriginalTask": "documents",
    "AnswerTask": "questions",
    "ApplicableTask": "questions",
    "MatchTask": "questions",
    "OpeningTask": "questions",
    "SliceTask": "questions",
    "PrepareTask": "questions",
    "DatasetTask": "datasets",
    "FleetQuestionTask": "datasets",
}
"""The module of each task. A child imports only the modules of its own tasks."""

TASK_NAMES = tuple(_MODULES)


def task_type(name: str) -> type[Any]:
    """Return the class of a task by its name.

    Raises:
        KeyError: no task has that name.
    """
    task: type[Any] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return task

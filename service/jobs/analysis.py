"""A process that answers one question on its standard output, as `service.jobs.export` writes downloads."""

import importlib
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from service.analysis.answers import Asked, answered, applicable, parameters_of, question_of
from service.jobs.export import run
from service.store.export import spill_of
from service.trace.selection import Selection


def requested(request: dict[str, Any]) -> Iterator[bytes]:
    """The answer to a request.

    Args:
        request: ``traces``, each with ``columns``, ``summary``, ``selection`` or null, and ``name``; ``spill``; and
            either ``question`` with ``parameters``, ``form`` and ``table`` or null, or null: which apply to the trace.
    """
    traces = [
        Asked(
            Path(one["columns"]),
            one["summary"],
            None if one["selection"] is None else Selection.parsed(one["selection"]),
            one["name"],
        )
        for one in request["traces"]
    ]
    spill = spill_of(Path(request["spill"]), os.getpid())
    if request["question"] is None:
        yield orjson.dumps(applicable(traces[0], spill))
        return
    question = question_of(request["question"])
    answer = answered(question, parameters_of(question, request["parameters"]), traces, spill)
    yield answer.form(request["form"], request["table"])


def prepare() -> None:
    """Load what takes a while and only some questions need, unless one waits already."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        importlib.import_module("service.analysis.facts.path_edges")  # and with it numba


if __name__ == "__main__":
    prepare()
    run(requested)

"""A process that answers questions, several at a time, and keeps for further ones what it has read of traces.

Each line of its input is a request, an object of JSON with an ``id`` and its ``client``, or says which one nobody waits
for any more. It writes ``begun`` with its id as it begins one, and its answer as it is found: a line of JSON that says
of which request, and how many bytes follow or with what error it failed. When its input closes, it ends.
"""

import importlib
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import orjson

from service.analysis.answers import answer_question, applicable, parameters_of, question_of
from service.analysis.catalogue import QUESTIONS
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.jobs.fair_queue import Entry, FairQueue
from service.rendering.initial_view import InitialView, initial_view
from service.store.database import limit_spill
from service.store.export import spill_of
from service.store.lists import whole_summary
from service.trace.errors import ExportFailed, TracedockError
from service.trace.selection import Selection
from service.trace.slices import SliceReference

AT_ONCE, PER_CLIENT = 3, 2
"""Questions that are worked on at once, in all and of one client: so no client keeps all others waiting.

They share what has been read, and wait for one another's reading.
"""

_BROKE = ExportFailed("The analysis broke; the server's log says more.")


def requested(request: dict[str, Any], readings: ReadingCache) -> bytes:
    """The answer to a request.

    Args:
        request: ``traces``, each with ``columns``, ``summary``, ``selection`` or null, ``name``, and
            ``is_base`` if it is one that others are compared with; and either
            ``question`` with ``parameters``, ``form`` and ``table`` or null, or null: which apply to the trace.
        readings: of these and other traces.

    A request also tells ``spill_max``: bytes that a database opened for it may spill, or null.

    A request with ``opening`` asks where the UI opens instead: ``columns``, ``summary``, and ``selection`` and
    ``slice`` or null; see `initial_view`.
    """
    if "opening" in request:
        return orjson.dumps(_opening(request["opening"]))
    traces = [
        AnalysisInput(
            Path(one["columns"]),
            whole_summary(one["summary"], Path(one["columns"])),
            None if one["selection"] is None else Selection.parsed(one["selection"]),
            one["name"],
            is_base=one.get("is_base", False),
        )
        for one in request["traces"]
    ]
    if request["question"] is None:
        return orjson.dumps(applicable(traces[0], readings))
    question = question_of(request["question"])
    answer = answer_question(question, parameters_of(question, request["parameters"]), traces, readings)
    return answer.form(request["form"], request["table"])


def _opening(told: dict[str, Any]) -> InitialView:
    selection = None if told["selection"] is None else Selection.parsed(told["selection"])
    reference = None if told["slice"] is None else SliceReference.parsed(told["slice"])
    return initial_view(Path(told["columns"]), told["summary"], selection, reference)


class Answering:
    """Takes requests and writes their answers.

    Args:
        readings: of the traces that are asked.
    """

    def __init__(self, readings: ReadingCache) -> None:
        self._readings = readings
        self._writing = threading.Lock()
        self._questions: FairQueue[dict[str, Any]] = FairQueue(PER_CLIENT)
        self._openings: FairQueue[dict[str, Any]] = FairQueue(PER_CLIENT)
        self._dropped: set[int] = set()
        for requests in (*[self._questions] * AT_ONCE, self._openings):  # a click does not wait for a page's questions
            threading.Thread(target=self._work, args=(requests,), daemon=True).start()

    def heed(self, line: bytes) -> None:
        """Take what a line of the input says."""
        told = orjson.loads(line)
        if "dropped" in told:
            self._dropped.add(told["dropped"])  # if it has not begun; nothing stops what has
        elif "opening" in told:
            self._openings.put(Entry(0, told["id"], told["client"], told))
        else:
            question = QUESTIONS.get(told["question"])
            self._questions.put(Entry(-question.cost if question else 0, told["id"], told["client"], told))

    def _work(self, requests: FairQueue[dict[str, Any]]) -> None:
        while True:
            entry = requests.take()
            if entry.number not in self._dropped:
                self._answer(entry.item)
            self._dropped.discard(entry.number)
            requests.done(entry)

    def _answer(self, request: dict[str, Any]) -> None:
        error: TracedockError | None = None
        answer = b""
        self._write({"begun": request["id"]})
        try:
            limit_spill(request.get("spill_max"))
            answer = requested(request, self._readings)
        except TracedockError as found:
            error = found
        except MemoryError:
            error = ExportFailed("The analysis takes more memory than there is.")
        except BaseException:  # noqa: BLE001 - who asked is told that it broke, and the log all that is known
            traceback.print_exc()
            error = _BROKE
        head = {"id": request["id"], "bytes": len(answer), "error": error.as_dict() if error else None}
        self._write(head, answer)

    def _write(self, head: dict[str, Any], answer: bytes = b"") -> None:
        with self._writing:
            sys.stdout.buffer.write(orjson.dumps(head) + b"\n" + answer)
            sys.stdout.buffer.flush()


def _import() -> None:
    """Import what most questions need, and with it numba and Parquet, which takes a while."""
    for name in ("path_edges", "slices"):
        importlib.import_module(f"service.analysis.facts.{name}")


def main(spill: Path) -> None:
    """Answer what the input asks, until it closes.

    Args:
        spill: the folder beside which there is room for what does not fit into memory.
    """
    answering = Answering(ReadingCache(spill_of(spill, os.getpid())))
    threading.Thread(target=_import).start()
    for line in sys.stdin.buffer:
        answering.heed(line)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:  # noqa: BLE001 - the process ends with it, and says all that is known
        traceback.print_exc()
    os._exit(0)  # amid its work, and without what DuckDB's module has to say of that

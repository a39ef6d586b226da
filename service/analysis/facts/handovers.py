"""Which threads run backward passes for which: the autograd engine's threads, and those that call it and wait."""

import re
from collections.abc import Iterable

import numpy as np

from service.analysis.facts.host import OP, THREAD, Host
from service.analysis.facts.nesting import NONE, Places, tallied
from service.analysis.facts.scope import Scope

FLOW = "fwdbwd"
"""The category of flows from forward operators to their backward ones."""

_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_LINKS = f"""
WITH ends AS (
    SELECT any_value({THREAD}) FILTER (ph = 's') AS caller, any_value({THREAD}) FILTER (ph = 'f') AS engine
    FROM events WHERE cat = '{FLOW}' AND ph IN ('s', 'f') GROUP BY id, id_text
)
SELECT engine, caller, count(*) AS links FROM ends WHERE engine NOTNULL AND caller NOTNULL
GROUP BY ALL ORDER BY links DESC, engine, caller
"""

Pair = tuple[int, int]


def callers_of(scope: Scope, host: Host) -> Places:
    """The thread that calls each of the autograd engine's threads, or `NONE`; of all other threads `NONE`.

    The flows from forward to backward operators tell it, or else the names of these: a thread of nothing but backward
    operators is called by the thread of its process that has most of the others.

    Args:
        scope: what is asked.
        host: its slices.
    """
    callers = np.full(len(host.thread_keys), NONE, np.int32)
    pairs = _linked(scope, host) or _named(scope, host)
    for engine, caller in pairs:
        root = caller
        while callers[root] >= 0:  # a backward pass within a backward pass
            root = int(callers[root])
        if callers[engine] < 0 and root != engine:
            callers[engine] = root
    return callers


def _linked(scope: Scope, host: Host) -> list[Pair]:
    """The engine's threads and their callers, by flows: the caller of a thread has most of its forward operators."""
    if not scope.summary["counts"].get(f"f|{FLOW}"):
        return []
    number = {key: place for place, key in enumerate(host.thread_keys.view(np.uint64).tolist())}
    caller_of: dict[int, int] = {}
    for row in scope.table(_LINKS).to_pylist():
        if row["engine"] in number and row["caller"] in number:
            caller_of.setdefault(number[row["engine"]], number[row["caller"]])
    return [(engine, caller) for engine, caller in caller_of.items() if engine != caller]


def _named(scope: Scope, host: Host) -> list[Pair]:
    """The same by names of operators, where no flow tells it."""
    is_backward = np.array([_BACKWARD.search(word) is not None for word in host.words], bool)
    if not is_backward.any() or len(host.thread_keys) < 2:
        return []
    backward = is_backward[host.names] & (host.kinds == OP)
    outermost = np.where(host.kinds == OP, host.threads, NONE).astype(np.int32)
    many = len(host.thread_keys)
    ops, backwards = tallied(outermost, many), tallied(np.where(backward, host.threads, NONE).astype(np.int32), many)
    processes = _processes(scope, host)
    others = [one for one in range(many) if ops[one] and not backwards[one]]
    return [
        (engine, max(same, key=lambda one: int(ops[one])))
        for engine in np.flatnonzero(backwards).tolist()
        if (same := [one for one in others if processes[one] == processes[engine]])
    ]


def _processes(scope: Scope, host: Host) -> list[object]:
    """The process of each thread."""
    return [thread[0] for thread in threads_of(scope, host)]


def threads_of(scope: Scope, host: Host) -> list[tuple[object, object]]:
    """The pid and the tid of each thread: a number, or a text as JSON has it."""
    scope.db.register("threads", scope.slices().threads)
    rows = scope.table(f"SELECT {THREAD} AS key, pid, pid_text, tid, tid_text FROM threads").to_pylist()
    scope.db.unregister("threads")
    known = {row["key"]: (_either(row["pid"], row["pid_text"]), _either(row["tid"], row["tid_text"])) for row in rows}
    keys: Iterable[int] = host.thread_keys.view(np.uint64).tolist()
    return [known[key] for key in keys]


def _either(number: int | None, text: str | None) -> object:
    return text if number is None else number

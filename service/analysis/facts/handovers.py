"""Which threads run backward passes for which: the autograd engine's threads, and those that call it and wait."""

import re
from collections.abc import Iterable

import numpy as np

from service.analysis.facts.host import IS_OP, OP, THREAD, Host
from service.analysis.facts.scope import Scope
from service.attribution.nesting import NONE, Indices, count_by_key

FLOW = "fwdbwd"
"""The category of flows from forward operators to their backward ones."""

_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_LINKS = f"""
WITH ends AS (
    SELECT any_value({THREAD}) FILTER (ph = 's') AS caller, any_value({THREAD}) FILTER (ph = 'f') AS engine
    FROM (SELECT * FROM events WHERE cat = '{FLOW}' AND ph IN ('s', 'f') LIMIT 100_000) GROUP BY id, id_text
)
SELECT engine, caller, count(*) AS links FROM ends WHERE engine <> caller
GROUP BY ALL ORDER BY links DESC, engine, caller
"""
"""The first flows are enough: the engine's threads take part in every backward pass."""

_FORWARD = f"""
SELECT DISTINCT {THREAD} AS engine
FROM (SELECT * FROM events WHERE ph = 'X' AND {IS_OP} AND contains(args, '"Fwd thread id"') LIMIT 200_000)
WHERE regexp_matches(args, '"Fwd thread id"\\s*:\\s*[1-9]')
"""
"""Forward operators tell of thread 0; a look at some of all operators is enough."""

Pair = tuple[int, int]


def callers_of(scope: Scope, host: Host) -> Indices:
    """The thread that calls each of the autograd engine's threads, or `NONE`; of all other threads `NONE`.

    The flows from forward to backward operators tell it. In a trace without them, threads that have backward operators
    are the engine's, and of the others the one with most operators in their process calls them.

    Args:
        scope: what is asked.
        host: its slices.
    """
    callers = np.full(len(host.thread_keys), NONE, np.int32)
    for engine, caller in _linked(scope, host) or _unlinked(scope, host):
        if callers[engine] < 0 and _first(callers, caller) != engine:
            callers[engine] = caller
    for engine in np.flatnonzero(callers >= 0).tolist():  # of a backward pass within another one, whoever calls that
        callers[engine] = _first(callers, engine)
    return callers


def _first(callers: Indices, thread: int) -> int:
    """The thread that calls a thread, or calls the one that does, and so on; itself if none does."""
    while callers[thread] >= 0:
        thread = int(callers[thread])
    return thread


def _linked(scope: Scope, host: Host) -> list[Pair]:
    """The engine's threads and their callers, by flows: the caller of a thread has most of its forward operators."""
    if not scope.summary["counts"].get(f"f|{FLOW}"):
        return []
    number = _numbers(host)
    caller_of: dict[int, int] = {}
    for row in scope.table(_LINKS).to_pylist():
        if row["engine"] in number and row["caller"] in number:
            caller_of.setdefault(number[row["engine"]], number[row["caller"]])
    return [*caller_of.items()]


def _unlinked(scope: Scope, host: Host) -> list[Pair]:
    """The same where no flow tells it: by names of operators, or else by the forward thread that they tell of."""
    many = len(host.thread_keys)
    ops = count_by_key(np.where(host.kinds == OP, host.threads, NONE).astype(np.int32), many)
    if np.count_nonzero(ops) < 2:
        return []
    engines = _named(host) or _told(scope, host)
    others = [one for one in range(many) if ops[one] and one not in engines]
    processes = [pid for pid, _ in threads_of(scope, host)] if engines and others else []
    return [
        (engine, max(same, key=lambda one: int(ops[one])))
        for engine in sorted(engines)
        if (same := [one for one in others if processes[one] == processes[engine]])
    ]


def _named(host: Host) -> set[int]:
    """The threads that have backward operators, by their names."""
    is_backward = np.array([_BACKWARD.search(word) is not None for word in host.words], bool)
    if not is_backward.any():
        return set()
    return set(np.unique(host.threads[is_backward[host.names] & (host.kinds == OP)]).tolist())


def _told(scope: Scope, host: Host) -> set[int]:
    """The threads of operators that tell of a forward thread."""
    number = _numbers(host)
    found = scope.table(_FORWARD)["engine"].to_pylist()
    return {number[engine] for engine in found if engine in number}


def _numbers(host: Host) -> dict[int, int]:
    """The number of each thread by its key."""
    return {key: place for place, key in enumerate(host.thread_keys.view(np.uint64).tolist())}


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

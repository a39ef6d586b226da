"""Threads of the autograd engine, and the threads that call the engine and wait for it."""

import re
from collections.abc import Iterable

import numpy as np

from service.analysis.facts.host import IS_OP, OP, THREAD, Host
from service.analysis.facts.scope import Scope
from service.attribution.nesting import NONE, Indices, count_by_key
from service.trace.summary import Key, key_of

FLOW = "fwdbwd"
"""Category of flows from forward operators to their backward operators."""

_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_LINKS = f"""
WITH ends AS (
    SELECT any_value({THREAD}) FILTER (ph = 's') AS caller, any_value({THREAD}) FILTER (ph = 'f') AS engine
    FROM (SELECT * FROM events WHERE cat = '{FLOW}' AND ph IN ('s', 'f') LIMIT 100_000) GROUP BY id, id_text
)
SELECT engine, caller, count(*) AS links FROM ends WHERE engine <> caller
GROUP BY ALL ORDER BY links DESC, engine, caller
"""
"""SQL for engine threads and their callers. The first flows suffice: every backward pass uses the engine's threads."""

_FORWARD = f"""
SELECT DISTINCT {THREAD} AS engine
FROM (SELECT * FROM events WHERE ph = 'X' AND {IS_OP} AND contains(args, '"Fwd thread id"') LIMIT 200_000)
WHERE regexp_matches(args, '"Fwd thread id"\\s*:\\s*[1-9]')
"""
"""SQL for threads whose operators name a forward thread other than 0. The first operators suffice.

PyTorch writes 0 for operators of the forward pass, so any other number marks an operator of the backward pass.
"""

Pair = tuple[int, int]
"""An engine thread and its caller."""


def callers_of(scope: Scope, host: Host) -> Indices:
    """Return the calling thread of each autograd engine thread, and `NONE` for all other threads.

    Flows from forward to backward operators identify the threads. If no such flow joins two threads, the engine's
    threads are those with operators named like backward operators, else those whose operators name a forward thread
    other than 0. Their caller is the thread with the most operators among the other threads of their process.

    Args:
        scope: scope of the rank.
        host: slices of the host.
    """
    callers = np.full(len(host.thread_keys), NONE, np.int32)
    for engine, caller in _pairs_by_flows(scope, host) or _pairs_by_operators(scope, host):
        if callers[engine] < 0 and _root_caller(callers, caller) != engine:
            callers[engine] = caller
    for engine in np.flatnonzero(callers >= 0).tolist():  # a nested backward pass belongs to the outermost caller
        callers[engine] = _root_caller(callers, engine)
    return callers


def _root_caller(callers: Indices, thread: int) -> int:
    """Follow callers up from a thread to the thread without a caller."""
    while callers[thread] >= 0:
        thread = int(callers[thread])
    return thread


def _pairs_by_flows(scope: Scope, host: Host) -> list[Pair]:
    """Return engine threads with their callers by flows; the caller is the source of most flows to the thread."""
    number = _thread_numbers(host)
    caller_of: dict[int, int] = {}
    for row in links_of_threads(scope):
        if row["engine"] in number and row["caller"] in number:
            caller_of.setdefault(number[row["engine"]], number[row["caller"]])
    return [*caller_of.items()]


def links_of_threads(scope: Scope) -> list[dict[str, int]]:
    """Return the keys of engine threads and their callers by flows, those with most flows first."""
    if not scope.event_count("f", FLOW):
        return []
    return scope.cached("links of threads", lambda: scope.table(_LINKS).to_pylist())


def _pairs_by_operators(scope: Scope, host: Host) -> list[Pair]:
    """Return engine threads with their callers by names of operators, else by the forward threads of operators."""
    count = len(host.thread_keys)
    ops = count_by_key(np.where(host.kinds == OP, host.threads, NONE).astype(np.int32), count)
    if np.count_nonzero(ops) < 2:
        return []
    engines = _engines_by_name(host) or _engines_by_forward_thread(scope, host)
    threads = host.threads_by_key.tolist()
    others = [thread for thread in threads if ops[thread] and thread not in engines]
    processes = [pid for pid, _ in threads_of(scope, host)] if engines and others else []
    return [
        (engine, max(candidates, key=lambda thread: int(ops[thread])))
        for engine in filter(engines.__contains__, threads)
        if (candidates := [thread for thread in others if processes[thread] == processes[engine]])
    ]


def _engines_by_name(host: Host) -> set[int]:
    """Return the threads that run operators with names of backward operators."""
    is_backward = np.array([_BACKWARD.search(word) is not None for word in host.words], bool)
    if not is_backward.any():
        return set()
    return set(np.unique(host.threads[is_backward[host.names] & (host.kinds == OP)]).tolist())


def _engines_by_forward_thread(scope: Scope, host: Host) -> set[int]:
    """Return the threads with operators that name a forward thread other than 0 (see `_FORWARD`)."""
    number = _thread_numbers(host)
    keys = scope.table(_FORWARD)["engine"].to_pylist()
    return {number[key] for key in keys if key in number}


def _thread_numbers(host: Host) -> dict[int, int]:
    """Return the number of each thread by its key."""
    return {key: number for number, key in enumerate(host.thread_keys.view(np.uint64).tolist())}


def threads_of(scope: Scope, host: Host) -> list[tuple[Key, Key]]:
    """Return the pid and tid of each thread."""
    scope.db.register("threads", scope.slices().threads)
    rows = scope.table(f"SELECT {THREAD} AS key, pid, pid_text, tid, tid_text FROM threads").to_pylist()
    scope.db.unregister("threads")
    tracks = {row["key"]: (key_of(row["pid"], row["pid_text"]), key_of(row["tid"], row["tid_text"])) for row in rows}
    keys: Iterable[int] = host.thread_keys.view(np.uint64).tolist()
    return [tracks[key] for key in keys]

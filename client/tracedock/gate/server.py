"""Runs on a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracedock.client import Client
from tracedock.errors import ApiError
from tracedock.gate.defaults import WAIT_S
from tracedock.gate.rules import Figure
from tracedock.gate.runs import ANALYSIS, Run, tables_of, wanted_tables

BASELINE_PREFIX = "@"
"""Character before the name of a baseline, where a trace or a group may stand, too."""
_NOT_FOUND = 404


@dataclass(frozen=True)
class Target:
    """A trace or a group on a server, with its name."""

    kind: str
    id: str
    name: str


def find_target(client: Client, text: str) -> Target:
    """Return the trace or the group of an id, a name, `latest`, or `@` and the name of a baseline.

    Raises:
        ApiError: there is no such trace, group or baseline, or the target of the baseline was deleted.
        AmbiguousTraceError: several traces match.
        AmbiguousTargetError: a trace and a group match.
    """
    if text.startswith(BASELINE_PREFIX):
        found = client.baseline(text[len(BASELINE_PREFIX) :])
        if found["target"] is None:
            detail = (
                f"The {found['kind']} {found['target_name']!r} of the baseline {found['name']!r} was deleted. Set it"
                f" again: tracedock baseline set {found['name']} TRACE"
            )
            raise ApiError("unknown_trace", "There is no such trace", detail, _NOT_FOUND)
        return Target(found["kind"], found["target"], found["target_name"])
    kind, target = client.target(text)
    return Target(kind, target["id"], target["name"])


def run_of(client: Client, target: Target, figures: Iterable[Figure], wait: float = WAIT_S) -> Run:
    """Return the run of a trace or a group, with what the figures need.

    Args:
        client: client of the server.
        target: the trace or the group.
        figures: the figures to compute of its steps.
        wait: seconds to wait for traces that are not ready.

    Raises:
        ApiError: the server refuses the request, as for a trace without steps.
    """
    of: Any = target.kind
    answer = client.analysis(
        target.id, ANALYSIS, of=of, wait=wait, parameters={"only": wanted_tables(figures)}, form="json"
    )
    tables, notes = tables_of(answer)
    if target.kind == "trace":
        return Run(target.name, tables, "trace", target.id, [(target.name, target.id)], notes)
    ranks = client.group(target.id)["ranks"]
    failed = [f"{rank['name']} is left out: it could not be read." for rank in ranks if rank["state"] == "failed"]
    traces = [(rank["name"], rank["trace"]) for rank in ranks if rank["state"] != "failed"]
    return Run(target.name, tables, "group", target.id, traces, [*notes, *failed])

"""Runs and baselines on a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tracedock.client import Client, Json
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
        found = baseline(client, text[len(BASELINE_PREFIX) :])
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


# `Client` has no methods for baselines yet; these use the requests on which its methods are built.


def baseline(client: Client, name: str) -> Json:
    """Return a baseline: `{"name", "kind", "target", "target_name", "set_at", "history"}`."""
    return client._json("GET", _path(name))  # noqa: SLF001


def baselines(client: Client) -> Iterable[Json]:
    """Yield all baselines, by name."""
    after = ""
    while after is not None:
        page = client._json("GET", "baselines", params={"limit": 500, "after": after})  # noqa: SLF001
        yield from page["baselines"]
        after = page["next"]


def set_baseline(client: Client, name: str, target: Target) -> Json:
    """Set a baseline to a trace or a group, and return it."""
    return client._json("PUT", _path(name), json={"target": target.id})  # noqa: SLF001


def delete_baseline(client: Client, name: str) -> None:
    """Delete a baseline with its history; traces and groups stay."""
    client._done("DELETE", _path(name))  # noqa: SLF001


def _path(name: str) -> str:
    return f"baselines/{quote(name, safe='')}"

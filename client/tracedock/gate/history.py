"""History of a figure: its value in each of a series of uploads, in order of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tracedock.client import Client
from tracedock.errors import ApiError
from tracedock.gate.defaults import WAIT_S, WARMUP
from tracedock.gate.rendering import aligned, number, shown, visible
from tracedock.gate.rules import Figure, RuleError, matches
from tracedock.gate.runs import Samples, samples_of
from tracedock.gate.server import Target, run_of
from tracedock.gate.significance import Value
from tracedock.gate.verdicts import TESTS, summary

COLUMNS = ("at", "id", "name", "value", "unit", "steps", "change_pct", "p_value", "reason")


@dataclass(frozen=True)
class Point:
    """A figure of one upload.

    Args:
        at: when it was uploaded, or when the baseline was set to it.
        target: the trace or the group.
        value: the figure; None if it is not known.
        steps: number of values.
        change_pct: growth in percent since the upload before; None if that is not known.
        p_value: of the test that the steps are larger than those of the upload before; None likewise.
        reason: why the figure is not known.
    """

    at: str
    target: Target
    value: Value | None = None
    steps: int = 0
    change_pct: float | None = None
    p_value: float | None = None
    reason: str | None = None


def history_of(
    client: Client, figure: Figure, uploads: Iterable[tuple[str, Target]], warmup: int = WARMUP
) -> Iterator[Point]:
    """Yield the figure of each upload, with its change since the one before; a deleted one has a reason instead."""
    before: list[Value] = []
    for at, target in uploads:
        if not target.id:
            yield Point(at, target, reason=f"The {target.kind} was deleted.")
            continue
        try:
            run = run_of(client, target, [figure], WAIT_S)
            samples = samples_of(run, figure, warmup=warmup)
        except (ApiError, RuleError) as error:
            yield Point(at, target, reason=error.detail if isinstance(error, ApiError) else str(error))
            continue
        value = summary(samples, figure.statistic)
        if value is None:
            yield Point(at, target, reason=f"No step is left after the first {warmup}.")
            continue
        change, p_value = None, None
        if before:
            test = TESTS[figure.statistic][1]
            last = summary(Samples(before), figure.statistic)
            change = float(100 * (value - last) / last) if last else None
            p_value = test(before, samples.values)
        yield Point(at, target, value, len(samples.values), change, p_value)
        before = samples.values


def uploads_named(client: Client, pattern: str, limit: int) -> list[tuple[str, Target]]:
    """Return the newest groups, and traces of no group, whose names match a pattern, in order of time."""
    literal = max(re.split("[*?]", pattern), key=len)
    groups = (
        (group["created_at"], Target("group", group["id"], group["name"]))
        for group in client.groups(name=literal)
        if matches(pattern, group["name"])
    )
    traces = (
        (trace["created_at"], Target("trace", trace["id"], trace["name"]))
        for trace in client.traces(name=literal)
        if trace["group"] is None and matches(pattern, trace["name"])
    )
    newest = [*islice(groups, limit), *islice(traces, limit)]
    return sorted(newest, key=lambda upload: upload[0])[-limit:]


def uploads_of_baseline(client: Client, name: str, limit: int) -> list[tuple[str, Target]]:
    """Return the latest targets of a baseline, in order of time; a deleted one has an empty id."""
    entries = client.baseline(name)["history"][:limit]
    return [
        (entry["set_at"], Target(entry["kind"], entry["target"] or "", entry["target_name"]))
        for entry in reversed(entries)
    ]


def fields_of(point: Point, figure: Figure) -> dict[str, Any]:
    """Return a point as JSON values, by `COLUMNS`."""
    return {
        "at": point.at,
        "id": point.target.id or None,
        "name": point.target.name,
        "value": number(point.value),
        "unit": figure.unit or None,
        "steps": point.steps,
        "change_pct": point.change_pct,
        "p_value": point.p_value,
        "reason": point.reason,
    }


def as_table(points: Iterable[Point], figure: Figure) -> str:
    """Return points as a table for a terminal."""
    rows = [
        (
            point.at,
            point.target.id or "deleted",
            shown(point.value, figure),
            str(point.steps),
            "-" if point.change_pct is None else f"{point.change_pct:+.2f} %",
            "-" if point.p_value is None else f"{point.p_value:.2g}",
            visible(point.target.name + (f": {point.reason}" if point.reason else "")),
        )
        for point in points
    ]
    titles = ("uploaded", "id", figure.text, "steps", "change", "p", "name")
    return "\n".join(aligned(titles, rows, right=range(2, 6))) + "\n"

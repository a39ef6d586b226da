"""Baselines: names for the traces or groups that others are compared with, with their history."""

import re
import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

from service.store.connection import Connection
from service.trace.errors import BadBaselineName, UnknownBaseline, UnknownTrace

HISTORY_MAX = 1000
"""Maximum number of targets that a baseline remembers; older ones are forgotten."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMES = {
    "trace": "SELECT name FROM trace WHERE id = ?",
    "group": "SELECT name FROM run_group WHERE id = ?",
}
_SELECT = "SELECT id, name, kind, target_name, set_ns, coalesce(trace, group_id) AS target FROM baseline"
CURRENT = "baseline.id IN (SELECT max(id) FROM baseline GROUP BY name)"
"""SQL condition: the entry is the present one of its baseline."""


@dataclass(frozen=True)
class Baseline:
    """A target that a baseline has, or once had.

    Attributes:
        id: number of this entry; a later entry has a larger one.
        name: name of the baseline.
        kind: `trace` or `group`.
        target_name: name of the target when the baseline was set to it.
        set_ns: when the baseline was set to it, in ns since the epoch.
        target: id of the target; None if it was deleted.
    """

    id: int
    name: str
    kind: Literal["trace", "group"]
    target_name: str
    set_ns: int
    target: str | None


def baseline_name(name: str) -> str:
    """Return the name if a baseline can have it; else raise `BadBaselineName`."""
    if not _NAME.fullmatch(name):
        raise BadBaselineName(
            f"{name[:100]!r} is no name of a baseline: 1 to 100 ASCII letters, digits, '.', '_' and '-', the first of"
            " them a letter or a digit."
        )
    return name


class Baselines:
    """The baselines in the catalog's file.

    Retention keeps the target of each baseline, but not the targets that it had before. A target that a client deletes
    becomes None.
    """

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def set(self, name: str, target: str) -> bool:
        """Set a baseline to a trace or a group, and return whether its name is new.

        If the target is unchanged, no entry is added.

        Raises:
            BadBaselineName: no baseline can have the name.
            UnknownTrace: neither a trace nor a group has the target's id.
        """
        baseline_name(name)
        with self._transaction() as db:
            kind, target_name = _named(db, target)
            current = db.execute(f"{_SELECT} WHERE name = ? ORDER BY id DESC LIMIT 1", (name,)).fetchone()
            if current is None or current["target"] != target:
                db.execute(
                    "INSERT INTO baseline (name, kind, trace, group_id, target_name, set_ns) VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        name, kind, target if kind == "trace" else None, target if kind == "group" else None,
                        target_name, time.time_ns(),
                    ),
                )  # fmt: skip
            db.execute(
                "DELETE FROM baseline WHERE name = ?1 AND id NOT IN"
                " (SELECT id FROM baseline WHERE name = ?1 ORDER BY id DESC LIMIT ?2)",
                (name, HISTORY_MAX),
            )
        return current is None

    def get(self, name: str) -> Baseline:
        """Return the present entry of a baseline; raises `UnknownBaseline`."""
        return self.history(name)[0]

    def history(self, name: str) -> list[Baseline]:
        """Return all entries of a baseline, the newest first; raises `UnknownBaseline`."""
        rows = self._rows(f"{_SELECT} WHERE name = ? ORDER BY id DESC", (name,))
        if not rows:
            raise UnknownBaseline(f"There is no baseline {name[:100]!r}; `GET /baselines` lists them.")
        return [Baseline(**row) for row in rows]

    def page(self, *, limit: int, after: str = "") -> list[Baseline]:
        """Return the present entries of baselines in order of their names, from the first name after `after`."""
        rows = self._rows(f"{_SELECT} WHERE {CURRENT} AND name > ? ORDER BY name LIMIT ?", (after, limit))
        return [Baseline(**row) for row in rows]

    def remove(self, name: str) -> None:
        """Delete a baseline with its history, but not its targets; raises `UnknownBaseline`."""
        self.get(name)
        with self._transaction() as db:
            db.execute("DELETE FROM baseline WHERE name = ?", (name,))


def _named(db: sqlite3.Connection, target: str) -> tuple[str, str]:
    """Return the kind and the name of a target; raises `UnknownTrace`."""
    for kind, sql in _NAMES.items():
        if row := db.execute(sql, (target,)).fetchone():
            return kind, row["name"]
    raise UnknownTrace(f"Neither a trace nor a group has the id {target[:64]!r}.")

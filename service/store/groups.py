"""Groups of traces that belong to one run."""

import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.store.connection import Connection
from service.store.idempotency import record_created
from service.trace.errors import BadGroupName, GroupExists, UnknownGroup, UnknownTrace

NAME_MAX_BYTES = 255

_SELECT = (
    "SELECT *, (SELECT count(*) FROM trace WHERE group_id = run_group.id) AS traces,"
    " (SELECT ifnull(sum(size), 0) FROM trace WHERE group_id = run_group.id) AS size FROM run_group"
)


@dataclass(frozen=True)
class Group:
    """A group of traces.

    Attributes:
        run_id: the client's identifier of the run.
        traces: number of its traces.
        size: size of their originals in bytes.
    """

    id: str
    name: str
    run_id: str | None
    created_ns: int
    traces: int
    size: int


def group_name(name: str) -> str:
    """Return the name if it is one line of printable text, with or without slashes; else raise `BadGroupName`."""
    too_long = len(name.encode("utf-8", "surrogatepass")) > NAME_MAX_BYTES
    if not name or name != name.strip() or not name.isprintable() or too_long:
        raise BadGroupName(
            f"{name[:100]!r} is no name of a group: 1 to {NAME_MAX_BYTES} bytes of printable characters, with no blank"
            " at either end."
        )
    return name


def group_id_of(db: sqlite3.Connection, name: str) -> str:
    """Return the id of the group with a name; the group is created if it is missing."""
    return _id_of(db, name) or _create(db, name, None)


def _id_of(db: sqlite3.Connection, name: str) -> str | None:
    row = db.execute("SELECT id FROM run_group WHERE name = ?", (name,)).fetchone()
    return row["id"] if row else None


def _create(db: sqlite3.Connection, name: str, run_id: str | None) -> str:
    group_id = secrets.token_hex(6)
    db.execute(
        "INSERT INTO run_group (id, name, run_id, created_ns) VALUES (?, ?, ?, ?)",
        (group_id, name, run_id, time.time_ns()),
    )
    return group_id


class Groups:
    """The groups in the catalog's file; their names are unique.

    Args:
        connection: the connection to the catalog.
        on_removed: called after a group was deleted.
    """

    def __init__(self, connection: Connection, *, on_removed: Callable[[], object] = lambda: None) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows
        self._on_removed = on_removed

    def add(self, name: str, *, run_id: str | None = None, traces: Sequence[str] = ()) -> Group:
        """Create a group, and move traces into it from their current groups.

        Raises:
            GroupExists: another group has this name.
            UnknownTrace: one of the traces does not exist.
        """
        with self._transaction() as db:
            if existing := _id_of(db, name):
                raise GroupExists(f"The group {existing} has the name {name!r}.", group=existing)
            group_id = _create(db, name, run_id)
            _join(db, group_id, traces)
            record_created(db, f"group/{group_id}")
        return self.get(group_id)

    def get(self, group_id: str) -> Group:
        """Return the group with an id; raises `UnknownGroup`."""
        rows = self._rows(f"{_SELECT} WHERE id = ?", (group_id,))
        if not rows:
            raise UnknownGroup(f"No group has the id {group_id[:64]!r}; `GET /groups?name=` finds the id of a name.")
        return Group(**rows[0])

    def find(self, id_or_name: str) -> Group:
        """Return the group with this id or, failing that, with this name; raises `UnknownGroup`."""
        rows = self._rows(f"{_SELECT} WHERE ? IN (id, name) ORDER BY id = ? DESC LIMIT 1", (id_or_name,) * 2)
        if not rows:
            raise UnknownGroup(f"No group has the id or the name {id_or_name[:100]!r}.")
        return Group(**rows[0])

    def page(self, *, limit: int, after: tuple[int, str] | None = None, name: str = "") -> list[Group]:
        """Return a page of groups, the newest first.

        Args:
            limit: largest number of groups.
            after: (created_ns, id) of the last group of the previous page.
            name: return only groups whose name contains this text, ignoring case.
        """
        rows = self._rows(
            f"{_SELECT} WHERE (created_ns, id) < (?, ?) AND instr(casefold(name), casefold(?))"
            " ORDER BY created_ns DESC, id DESC LIMIT ?",
            (*(after or ((1 << 63) - 1, "")), name, limit),
        )
        return [Group(**row) for row in rows]

    def update(
        self,
        group_id: str,
        *,
        name: str | None = None,
        run_id: str | None = None,
        traces: Sequence[str] | None = None,
        pinned: bool | None = None,
    ) -> Group:
        """Update the given fields of a group, and return the group.

        Args:
            group_id: the group's id.
            name: its new name.
            run_id: its new run id; empty to remove the run id.
            traces: ids of all its traces from now on.
            pinned: whether retention keeps all its traces.

        Raises:
            UnknownGroup: no group has this id.
            GroupExists: another group has this name.
            UnknownTrace: one of the traces does not exist.
        """
        self.get(group_id)
        with self._transaction() as db:
            if name is not None:
                if (existing := _id_of(db, name)) and existing != group_id:
                    raise GroupExists(f"The group {existing} has the name {name!r}.", group=existing)
                db.execute("UPDATE run_group SET name = ? WHERE id = ?", (name, group_id))
            if run_id is not None:
                db.execute("UPDATE run_group SET run_id = ? WHERE id = ?", (run_id or None, group_id))
            if traces is not None:
                db.execute("UPDATE trace SET group_id = NULL WHERE group_id = ?", (group_id,))
                _join(db, group_id, traces)
            if pinned is not None:
                db.execute("UPDATE trace SET pinned = ? WHERE group_id = ?", (pinned, group_id))
        return self.get(group_id)

    def remove(self, group_id: str) -> None:
        """Delete a group but not its traces; raises `UnknownGroup`."""
        self.get(group_id)
        with self._transaction() as db:
            db.execute("DELETE FROM run_group WHERE id = ?", (group_id,))
        self._on_removed()

    def remove_empty(self, group_id: str) -> None:
        """Delete a group if it has no traces."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM run_group WHERE id = ? AND NOT EXISTS (SELECT 1 FROM trace WHERE group_id = run_group.id)",
                (group_id,),
            )
        self._on_removed()


def _join(db: sqlite3.Connection, group_id: str, traces: Sequence[str]) -> None:
    for trace_id in traces:
        if not db.execute("UPDATE trace SET group_id = ? WHERE id = ?", (group_id, trace_id)).rowcount:
            raise UnknownTrace(f"No trace has the id {trace_id[:64]!r}.")

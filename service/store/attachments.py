"""Attachments: files that are kept beside a trace or a run, and are removed with it."""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from service.formats.attachments import AttachmentKind
from service.formats.execution_trace import ExecutionTraceFile
from service.store.catalog import Trace
from service.store.connection import Connection
from service.store.folder import Folder
from service.store.uploads import Received
from service.trace.errors import DiskFull, UnknownAttachment, UnknownGroup, UnknownTrace
from service.trace.rank import rank_in_name

_COLUMNS = "id, name, kind, trace, group_id, rank, size, sha256, created_ns"
_SELECT = f"SELECT {_COLUMNS} FROM attachment"
_ORPHANS = "trace IS NULL AND group_id IS NULL"
"""SQL condition: the attachment has lost its owner, so that its file is removed, and then its record."""


@dataclass(frozen=True)
class Attachment:
    """A file that belongs to a trace or to a group.

    Attributes:
        kind: what it is, by its content.
        trace: id of the trace that it belongs to; None if it belongs to a group.
        group_id: id of the group that it belongs to; None if it belongs to a trace.
        rank: the rank in its name; None without one.
        size: its size in bytes.
    """

    id: str
    name: str
    kind: AttachmentKind
    trace: str | None
    group_id: str | None
    rank: int | None
    size: int
    sha256: str
    created_ns: int


class Attachments:
    """The attachments: records in the catalog's file, and bytes in the data folder.

    The bytes are complete and durable before their record is written. A record loses its owner when the owner or the
    attachment is deleted; the file and then the record of such an orphan are removed at once or, after a kill, at the
    next start.

    Args:
        connection: the connection to the catalog.
        folder: the data folder.
    """

    def __init__(self, connection: Connection, folder: Folder) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows
        self._folder = folder

    def add(
        self,
        attachment_id: str,
        *,
        name: str,
        kind: AttachmentKind,
        received: Received,
        trace: str | None = None,
        group: str | None = None,
    ) -> tuple[Attachment, bool]:
        """Record an attachment whose bytes are in place; return it, and whether it is new.

        If its owner has the same bytes under the same name already, these stay, and the new file is removed.

        Args:
            attachment_id: its id.
            name: its name.
            kind: what it is.
            received: its bytes.
            trace: id of the trace that it belongs to; or
            group: id of the group that it belongs to.

        Raises:
            UnknownTrace, UnknownGroup: the owner was deleted meanwhile.
        """
        with self._transaction() as db:
            _check_owner(db, trace, group)
            existing = db.execute(
                "SELECT id FROM attachment WHERE coalesce(trace, group_id) = ? AND name = ? AND sha256 = ?",
                (trace or group, name, received.sha256),
            ).fetchone()
            if existing is None:
                db.execute(
                    f"INSERT INTO attachment ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(attachment_id, name, kind, trace, group, rank_in_name(name)),
                        *(received.size, received.sha256, time.time_ns()),
                    ),
                )
        if existing is None:
            return self.get(attachment_id), True
        self.path(attachment_id).unlink(missing_ok=True)
        return self.get(existing["id"]), False

    def get(self, attachment_id: str) -> Attachment:
        """Return the attachment with an id; raises `UnknownAttachment`."""
        rows = self._rows(f"{_SELECT} WHERE id = ? AND NOT ({_ORPHANS})", (attachment_id,))
        if not rows:
            raise UnknownAttachment(f"No attachment has the id {attachment_id[:64]!r}.")
        return Attachment(**rows[0])

    def path(self, attachment_id: str) -> Path:
        """Return the path of an attachment's bytes."""
        return self._folder.attachment(attachment_id)

    def page(self, owner: str, *, limit: int, after: tuple[int, str] | None = None) -> list[Attachment]:
        """Return a page of the attachments of a trace, or of a group and its traces, the newest first.

        Args:
            owner: id of the trace or the group.
            limit: largest number of attachments.
            after: (created_ns, id) of the last attachment of the previous page.
        """
        rows = self._rows(
            f"{_SELECT} WHERE (group_id = ?1 OR trace = ?1 OR trace IN (SELECT id FROM trace WHERE group_id = ?1))"
            " AND (created_ns, id) < (?2, ?3) ORDER BY created_ns DESC, id DESC LIMIT ?4",
            (owner, *(after or ((1 << 63) - 1, "")), limit),
        )
        return [Attachment(**row) for row in rows]

    def execution_traces(self, trace: Trace) -> tuple[ExecutionTraceFile, ...]:
        """Return the execution traces that may describe a trace: its own, then those of its rank in its group.

        Of each, the newest come first.
        """
        rows = self._rows(
            "SELECT id, name FROM attachment WHERE kind = 'execution_trace'"
            " AND (trace = ? OR (group_id = ? AND rank = ?)) ORDER BY trace IS NULL, created_ns DESC, id DESC",
            (trace.id, trace.group_id, trace.summary_or_empty.rank),
        )
        return tuple(ExecutionTraceFile(self.path(row["id"]), row["name"]) for row in rows)

    def remove(self, attachment_id: str) -> None:
        """Delete an attachment; raises `UnknownAttachment`."""
        self.get(attachment_id)
        try:
            self._disown(attachment_id)
        except DiskFull:  # the catalog has no room to record the removal; removing the file makes room
            self.path(attachment_id).unlink(missing_ok=True)
            self._disown(attachment_id)
        self.remove_orphans()

    def _disown(self, attachment_id: str) -> None:
        with self._transaction() as db:
            db.execute("UPDATE attachment SET trace = NULL, group_id = NULL WHERE id = ?", (attachment_id,))

    def remove_orphans(self) -> None:
        """Remove the files of attachments without an owner, then their records."""
        orphans = [row["id"] for row in self._rows(f"SELECT id FROM attachment WHERE {_ORPHANS}")]
        if not orphans:
            return
        for orphan in orphans:
            self.path(orphan).unlink(missing_ok=True)
        with self._transaction() as db:
            db.executemany("DELETE FROM attachment WHERE id = ?", [(orphan,) for orphan in orphans])

    def sweep(self) -> None:
        """Remove what a killed server has left: orphans, and files without a record."""
        self.remove_orphans()
        known = {row["id"] for row in self._rows("SELECT id FROM attachment")}
        for file in self._folder.attachments.iterdir():
            if file.name not in known:
                file.unlink()


def _check_owner(db: sqlite3.Connection, trace: str | None, group: str | None) -> None:
    if trace is not None and not db.execute("SELECT 1 FROM trace WHERE id = ?", (trace,)).fetchone():
        raise UnknownTrace(f"No trace has the id {trace[:64]!r}.")
    if group is not None and not db.execute("SELECT 1 FROM run_group WHERE id = ?", (group,)).fetchone():
        raise UnknownGroup(f"No group has the id {group[:64]!r}.")

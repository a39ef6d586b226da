"""Direct uploads in the catalog's file: objects of a bucket that this server has asked clients to write.

A record is the server's responsibility for one object: it is kept until the object can't appear any more, and is
removed. The id is that of the trace-to-be, so the upload is complete if there is a trace of that id.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import asdict, dataclass

import orjson

from service.store.connection import Connection
from service.store.jobs import Priority
from service.trace.errors import UnknownUpload


@dataclass(frozen=True)
class DirectUpload:
    """A direct upload; times are nanoseconds since the epoch.

    Attributes:
        url: the URL of the object.
        size: number of bytes that the client has announced.
        group_name: name of the group of the trace, or None.
        client: identity of the client, for the limit of uploads.
        url_expires_ns: when the presigned request expires.
        expires_ns: when the upload ends unless it is complete.
        ended_ns: when it was ended, expired, or its trace was deleted: its object is to be removed.
        removed_ns: when the object was removed first. A request that had begun before can still write it.
    """

    id: str
    url: str
    name: str
    size: int
    group_name: str | None
    priority: Priority
    client: str
    url_expires_ns: int
    expires_ns: int
    ended_ns: int | None = None
    removed_ns: int | None = None


class DirectUploadRecords:
    """The records of direct uploads."""

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def add(self, upload: DirectUpload) -> None:
        """Record an upload."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO direct_upload (id, url, name, size, group_name, priority, client, url_expires_ns,"
                " expires_ns) VALUES (:id, :url, :name, :size, :group_name, :priority, :client, :url_expires_ns,"
                " :expires_ns)",
                asdict(upload),
            )

    def get(self, upload_id: str) -> DirectUpload:
        """Return the upload with an id; raises `UnknownUpload`."""
        rows = self._rows("SELECT * FROM direct_upload WHERE id = ?", (upload_id,))
        if not rows:
            raise UnknownUpload(f"No direct upload has the id {upload_id[:64]!r}.")
        return _upload(rows[0])

    def unfinished(self) -> dict[str, int]:
        """Return the numbers of uploads that are neither complete nor ended, by client."""
        rows = self._rows(
            "SELECT client, count(*) AS count FROM direct_upload WHERE ended_ns IS NULL"
            " AND id NOT IN (SELECT id FROM trace) GROUP BY client"
        )
        return {row["client"]: row["count"] for row in rows}

    def end(self, upload_id: str, now_ns: int) -> bool:
        """End an upload that is not complete; return False if it is complete or has ended before."""
        with self._transaction() as db:
            update = db.execute(
                "UPDATE direct_upload SET ended_ns = ? WHERE id = ? AND ended_ns IS NULL"
                " AND id NOT IN (SELECT id FROM trace)",
                (now_ns, upload_id),
            )
        return update.rowcount == 1

    def end_expired(self, now_ns: int, *, excluding: Collection[str]) -> None:
        """End the uploads that have expired, and those of traces whose original is not kept.

        Args:
            now_ns: the time.
            excluding: ids of uploads that are being completed.
        """
        with self._transaction() as db:
            db.execute(
                "UPDATE direct_upload SET ended_ns = ? WHERE ended_ns IS NULL AND (id IN (SELECT id FROM trace WHERE"
                " original_removed) OR (expires_ns <= ? AND id NOT IN (SELECT id FROM trace)"
                " AND id NOT IN (SELECT value FROM json_each(?))))",
                (now_ns, now_ns, orjson.dumps(list(excluding)).decode()),
            )

    def to_remove(self, *, final_before_ns: int) -> list[DirectUpload]:
        """Return the ended uploads whose object was not removed yet, or can't appear any more.

        Args:
            final_before_ns: requests that expired before this time can't write any more.
        """
        rows = self._rows(
            "SELECT * FROM direct_upload WHERE ended_ns IS NOT NULL"
            " AND (removed_ns IS NULL OR max(url_expires_ns, ended_ns) < ?) ORDER BY ended_ns",
            (final_before_ns,),
        )
        return [_upload(row) for row in rows]

    def set_removed(self, upload_id: str, now_ns: int) -> None:
        """Record that the object of an ended upload was removed."""
        with self._transaction() as db:
            db.execute("UPDATE direct_upload SET removed_ns = ? WHERE id = ?", (now_ns, upload_id))

    def forget(self, upload_id: str) -> None:
        """Delete the record of an upload whose object can't appear any more."""
        with self._transaction() as db:
            db.execute("DELETE FROM direct_upload WHERE id = ?", (upload_id,))


def _upload(row: sqlite3.Row) -> DirectUpload:
    values = dict(row)
    return DirectUpload(**values | {"priority": Priority(values["priority"])})

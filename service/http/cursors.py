"""Cursors of lists that are sorted newest first, and timestamps."""

import base64
import binascii
from datetime import UTC, datetime

from service.trace.errors import BadCursor


def timestamp(created_ns: int) -> str:
    """Format a time, given in ns since the epoch, for the API: ISO 8601 in UTC, with milliseconds."""
    return f"{datetime.fromtimestamp(created_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def cursor_of(created_ns: int, last_id: str) -> str:
    """Return the cursor of the page after the row with this time and id."""
    return base64.urlsafe_b64encode(f"{created_ns}.{last_id}".encode()).decode()


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    """Parse a cursor into the time and the id of the last row; raises `BadCursor`."""
    if cursor is None:
        return None
    try:
        created, last_id = base64.urlsafe_b64decode(cursor).decode().split(".")
        int(created).to_bytes(8, signed=True)  # SQLite integers have at most 8 bytes
        return int(created), last_id
    except (ValueError, OverflowError, binascii.Error) as error:
        raise BadCursor(f"{cursor[:100]!r} is not the `next` of a page.") from error

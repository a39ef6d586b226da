"""Pages of what is listed from the newest on: the cursor of the next, and when something came."""

import base64
import binascii
from datetime import UTC, datetime

from service.trace.errors import BadCursor


def timestamp(created_ns: int) -> str:
    """A time as the API tells it."""
    return f"{datetime.fromtimestamp(created_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def cursor_of(created_ns: int, last_id: str) -> str:
    """What the page after the one that ends with this is asked with."""
    return base64.urlsafe_b64encode(f"{created_ns}.{last_id}".encode()).decode()


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    """What `cursor_of` told of; raises `BadCursor`."""
    if cursor is None:
        return None
    try:
        created, last_id = base64.urlsafe_b64decode(cursor).decode().split(".")
        int(created).to_bytes(8, signed=True)  # SQLite compares no larger ones
        return int(created), last_id
    except (ValueError, OverflowError, binascii.Error) as error:
        raise BadCursor(f"{cursor[:100]!r} is not the `next` of a page.") from error

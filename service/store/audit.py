"""The audit log: one line of JSON for each change, in a file of bounded size in the data folder.

{"at": "2026-11-21T15:30:00.123Z", "who": "ci", "did": "upload", "address": "10.0.0.7", "trace": "…", "status": 201}
"""

import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

SIZE_MAX, KEPT = 8 << 20, 4
"""Size in bytes at which the file is rotated, and the number of rotated files that are kept."""

log = logging.getLogger("tracedock.audit")
log.setLevel(logging.INFO)


class _Handler(RotatingFileHandler):
    """A log file whose write errors, with the lost line, go to the server's own log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the base class's
        """Log a line that could not be written."""
        logging.getLogger(__name__).warning(
            "the audit log can't be written (%s): %s", sys.exc_info()[1], record.getMessage()
        )


class Audit:
    """The audit log: writes each change to a file until it is closed. Only the file's owner may read the file.

    Args:
        path: path of the file.
        rotate: whether to rotate the file when it is full; only one process may do so.
    """

    def __init__(self, path: Path, *, rotate: bool) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._file = _Handler(path, maxBytes=SIZE_MAX if rotate else 0, backupCount=KEPT, encoding="utf-8")
        self._file.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(self._file)

    def close(self) -> None:
        """Close the file."""
        log.removeHandler(self._file)
        with suppress(OSError):  # lines that could not be written are in the server's log
            self._file.close()


def note(actor: str, *, did: str, **fields: str | int | None) -> None:
    """Log a change.

    Args:
        actor: name of the token, or `local`.
        did: the action, such as `upload`.
        fields: further fields of the line, such as `address`, `trace` and `status`; None leaves a field out.
    """
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    line = {"at": at, "who": actor, "did": did} | {key: value for key, value in fields.items() if value is not None}
    log.info(json.dumps(line))  # in ASCII, which has no other line separators

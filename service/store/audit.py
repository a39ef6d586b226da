"""The audit log: one line of JSON for each change, in a file of the data folder that never outgrows its bound.

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
"""Bytes of the file before it is put aside, and how many of these are kept."""

log = logging.getLogger("tracedock.audit")
log.setLevel(logging.INFO)


class _Handler(RotatingFileHandler):
    """Writes the lines of the audit log; a line that can't be written goes to the server's own log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the base class's
        """Report a line that was not written."""
        logging.getLogger(__name__).warning(
            "the audit log can't be written (%s): %s", sys.exc_info()[1], record.getMessage()
        )


class Audit:
    """The log in the file at `path`, for as long as it is open; only its owner may read it.

    Args:
        path: of the file.
        rotate: whether the file is put aside when it is full, which only one process may do.
    """

    def __init__(self, path: Path, *, rotate: bool) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._file = _Handler(path, maxBytes=SIZE_MAX if rotate else 0, backupCount=KEPT, encoding="utf-8")
        self._file.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(self._file)

    def close(self) -> None:
        """Close the file."""
        log.removeHandler(self._file)
        with suppress(OSError):  # lines that could not be written, which the server's log has
            self._file.close()


def note(who: str, *, did: str, **facts: str | int | None) -> None:
    """Note a change.

    Args:
        who: the name of the token, or `local`.
        did: what, as in `upload`.
        facts: what more there is to say: `address`, `trace`, `status`…
    """
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    told = {"at": at, "who": who, "did": did} | {key: value for key, value in facts.items() if value is not None}
    log.info(json.dumps(told))  # in ASCII: no other sign ends a line, whoever reads it

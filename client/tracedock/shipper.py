"""Background process of a training process: compresses the traces in a spool folder and sends them.

    python -m tracedock.shipper FOLDER --trainer PID --linger SECONDS --nice 19

TRACEDOCK_URL and TRACEDOCK_TOKEN name the server. Only traces for this server are sent, so that no other server gets
the token. Each problem is one line on stderr, once. The process ends when the trainer has ended and nothing is left to
send, and at the latest `--linger` seconds after the trainer.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from tracedock.errors import DigestMismatchError
from tracedock.spool import Entry, Spool, public_url

if TYPE_CHECKING:
    from tracedock.client import Client  # which loads httpx: slow, so not before the priority is low

CANNOT_START = 2
"""Exit status if no restart can help: the URL or the token is malformed, or httpx is missing."""
LOWEST = 19
"""Nice value of a process that runs only while a processor is idle."""
POLL_S = 0.5
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
_PASSING = (401, 403, 404, 408, 409, 421, 423, 425, 429)
"""Refusals that are not about the trace: they pass when someone mends the token, the URL or the server."""
_ADVICE = {
    0: "Start the server, or check the URL and the network.",
    401: "Set TRACEDOCK_TOKEN to a valid token in the training's environment.",
    403: "Give the token the scope write.",
    404: "Check the URL: it must be that of a Tracedock server.",
    413: "Raise TRACEDOCK_MAX_UPLOAD_BYTES of the server, or profile fewer steps.",
    507: "Make room on the server.",
}


class Shipper:
    """Compresses and sends the traces of a spool that are meant for one server.

    Args:
        spool: the spool folder.
        url: URL of the server, as in the spool.
        client: client of the server.
    """

    def __init__(self, spool: Spool, url: str, client: Client) -> None:
        self._spool, self._url, self._client = spool, url, client
        self._left_alone: set[str] = set()  # traces that this process does not send
        self._uncompressed: set[str] = set()  # traces that are sent as they are: they can't be compressed
        self._reported: set[str] = set()

    def compress_all(self) -> bool:
        """Compress all plain traces, and return whether this was possible: someone else may have locked one."""
        for identity in self._to_compress():
            with self._spool.claimed(identity) as entry:
                if entry and entry.plain.exists():
                    self._compress(entry)
        return not self._to_compress()

    def _to_compress(self) -> list[str]:
        return [
            identity
            for identity in self._ours()
            if self._spool.has_plain(identity) and identity not in self._uncompressed
        ]

    def send_all(self) -> bool:
        """Send all compressed traces, and return whether this was possible; stop at the first passing trouble."""
        for identity in self._ours():
            with self._spool.claimed(identity) as entry:
                if entry:
                    try:
                        self._send(entry)
                    except Exception as error:  # noqa: BLE001 - whatever it is, the traces stay, and the next pass tries again
                        if not self._is_refused(error):
                            self.report_trouble(error)
                            return False
                        self._report(
                            identity, f"The server refuses {identity}: {error} {_advice(error)} The file stays."
                        )
                        self._left_alone.add(identity)
        return True

    def _ours(self) -> list[str]:
        """Return the ids of the traces for this server, oldest first."""
        return [
            identity
            for identity in self._spool.identities()
            if identity not in self._left_alone and self._is_ours(identity)
        ]

    def _is_ours(self, identity: str) -> bool:
        try:
            if self._spool.description(identity)["url"] == self._url:
                return True
        except FileNotFoundError:  # another process has just sent it
            return False
        except ValueError as error:
            self._report(identity, f"{identity}.json is damaged: {error}. The trace beside it stays.")
        self._left_alone.add(identity)
        return False

    def _compress(self, entry: Entry) -> None:
        if entry.compressed.exists():  # a killed process had no time to remove the plain one
            entry.plain.unlink()
            return
        try:
            entry.compress()
        except OSError as error:
            self._uncompressed.add(entry.identity)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "Make room, or set TRACEDOCK_SPOOL to a folder of another disk." if is_full else ""
            self._report("compression", f"{error}: traces are sent without compression. {advice}")

    def _send(self, entry: Entry) -> None:
        if not entry.compressed.exists() and entry.identity not in self._uncompressed:
            return  # its turn comes once it is compressed
        trace = self._spool.trace(entry)
        if not self._has_arrived(trace.path, trace.name):
            self._client.upload(trace.path, name=trace.name, group=trace.group, key=trace.key)
        entry.remove()

    def _has_arrived(self, path: Path, name: str) -> bool:
        """Return whether the server has the trace: a process can be killed between an upload and the removal."""
        digests = [
            trace["sha256"]
            for trace in self._client.traces(name=name)
            if trace["name"] == name and trace["state"] != "failed"
        ]
        return bool(digests) and _sha256(path) in digests

    def _is_refused(self, error: Exception) -> bool:
        """Return whether the server will refuse this trace again; other errors pass."""
        status = getattr(error, "status", 0)
        return isinstance(error, DigestMismatchError) or (400 <= status < 500 and status not in _PASSING)

    def report_trouble(self, error: Exception) -> None:
        """Report an error that may pass."""
        reason = (str(error) or type(error).__name__).splitlines()[0]
        key = f"{type(error).__name__} {getattr(error, 'status', '')}"
        self._report(key, f"{reason} {_advice(error)} The traces stay in {self._spool.folder} until then.")

    def _report(self, key: str, message: str) -> None:
        """Write a message to the log, unless one with this key is there."""
        if key not in self._reported:
            self._reported.add(key)
            print(" ".join(message.split()), file=sys.stderr, flush=True)  # noqa: T201 - the log of this process


def main() -> int:
    """Run until the trainer has ended and nothing is left to send; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tracedock.shipper", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trainer", type=int, required=True, metavar="PID")
    parser.add_argument("--linger", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--nice", type=int, default=LOWEST, choices=range(LOWEST + 1), metavar="0…19")
    arguments = parser.parse_args()
    _lower_priority(arguments.nice)

    try:
        from tracedock.client import DEFAULT_URL, Client  # noqa: PLC0415 - httpx loads slowly

        client = Client()
    except (ImportError, ValueError) as error:
        sys.stderr.write(f"{error}. No trace is sent; the files stay in {arguments.folder}.\n")
        return CANNOT_START
    spool = Spool(arguments.folder)
    Thread(target=_end_after, args=(arguments.trainer, arguments.linger), daemon=True).start()
    with client:
        url = public_url(os.environ.get("TRACEDOCK_URL") or DEFAULT_URL)
        try:
            spool.remove_strays()
            _run(Shipper(spool, url, client), arguments.trainer)
        except OSError as error:
            sys.stderr.write(f"{error}. The background process ends; the files stay.\n")
            return 1
    return 0


def _run(shipper: Shipper, trainer: int) -> None:
    """Compress in this thread and send in another one, because a server may not answer for minutes."""
    is_last = Event()
    sender = Thread(target=_send, args=(shipper, is_last), daemon=True)
    sender.start()
    while True:
        is_alive = os.getppid() == trainer  # seen before the pass, so that the last pass sees the last trace
        is_compressed = shipper.compress_all()  # not yet if the other thread, or another process, has locked a trace
        if not is_alive and is_compressed:
            break
        time.sleep(POLL_S)
    is_last.set()
    sender.join()


def _send(shipper: Shipper, is_last: Event) -> None:
    pause = PAUSE_S
    while True:
        ends = is_last.is_set()  # seen before the pass, so that the last pass sees all compressed traces
        try:
            is_done = shipper.send_all()
        except OSError as error:  # of the folder
            shipper.report_trouble(error)
            is_done = False
        if is_done:
            if ends:
                return
            is_last.wait(POLL_S)
            pause = PAUSE_S
        else:
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads the requests of many ranks
            pause = min(2 * pause, PAUSE_MAX_S)


def _end_after(trainer: int, linger_s: float) -> None:
    """End this process `linger_s` seconds after the trainer, whatever the other threads wait for."""
    while os.getppid() == trainer:
        time.sleep(POLL_S)
    time.sleep(linger_s)
    os._exit(0)


def _lower_priority(nice: int) -> None:
    """Lower the priority, also as a session: with autogroups, Linux weighs sessions, not processes."""
    os.nice(nice)
    if nice == LOWEST and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # the container forbids it: the nice value is left
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # no Linux, or no autogroups
        Path("/proc/self/autogroup").write_text(str(nice))


def _advice(error: Exception) -> str:
    return "" if isinstance(error, OSError) else _ADVICE.get(getattr(error, "status", 0), "")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

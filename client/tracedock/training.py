"""Sends each trace of `torch.profiler` to a server, without a wait in the training.

    with torch.profiler.profile(schedule=…, on_trace_ready=tracedock.handler("http://traces:8700")) as profiler: …

The training process only has the profiler write the trace into a spool folder. A background process
(`tracedock.shipper`) compresses and sends it. The module is not named after its function: a submodule `handler` would
hide `tracedock.handler`.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

from tracedock.launch import host, launch
from tracedock.shipper import CANNOT_START, LOWEST
from tracedock.spool import Spool, public_url

DEFAULT_URL = "http://127.0.0.1:8700"
SPOOL_BYTES = 20_000_000_000
LINGER_S = 600.0
CLOSE_S = 60.0
_STABLE_S = 60.0
"""Seconds after which a background process counts as sound."""
_STARTS_MAX = 5
"""Number of starts in a row of background processes that were not sound."""
_POLL_S = 0.05
_TAIL = 64

_CONSEQUENCE = {
    "trace": "This trace is dropped; the training goes on.",
    "start": "The traces stay in the spool folder until the next run, or `tracedock upload --spool FOLDER`.",
    "log": "The messages of the background process can't be shown.",
    "stop": "The background process ends by itself.",
}

_log = logging.getLogger("tracedock")


class Profiler(Protocol):
    """What the handler needs of `torch.profiler.profile`."""

    def export_chrome_trace(self, path: str) -> Any:
        """Write the trace of the current cycle as JSON."""


class Handler:
    """Callable for `on_trace_ready`; see `handler`. A context manager, which waits for the sending at its end."""

    def __init__(
        self, url: str, group: str | None, token: str | None, spool: Spool, spool_bytes: int, linger_s: float, nice: int
    ) -> None:
        self._url, self._group, self._token = url, group, token
        self._spool, self._spool_bytes, self._linger_s, self._nice = spool, spool_bytes, linger_s, nice
        self._logged: set[str] = set()
        self._last_size = 0  # of the last trace, in bytes: the best estimate of the next one
        self._begin()
        atexit.register(self._at_exit)
        self._guarded("start", self._start)

    def __call__(self, profiler: Profiler) -> None:
        """Have the profiler write its trace into the spool folder; log what goes wrong, and raise nothing."""
        self._notice_fork()
        self._guarded("trace", lambda: self._take(profiler))
        self._guarded("start", self._start)
        self._guarded("log", self._relay)

    def __enter__(self) -> Handler:
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        self.close(0 if error else CLOSE_S)  # a failure must be seen at once

    def pending(self) -> int:
        """Return the number of this process's traces that the server has not confirmed; 0 if the folder is gone."""
        self._notice_fork()
        try:
            return sum(self._session in identity for identity in self._spool.identities())
        except OSError:
            return 0

    def close(self, timeout: float = CLOSE_S) -> bool:
        """Wait until the server has confirmed all traces; return whether it has.

        After `timeout` seconds the background process goes on alone, until it ends as described in `handler`.
        """
        self._notice_fork()
        deadline = time.monotonic() + timeout
        while self.pending() and time.monotonic() < deadline:
            self._guarded("start", self._start)
            if not self._is_running():
                break
            time.sleep(_POLL_S)
        self._guarded("log", self._relay)
        atexit.unregister(self._at_exit)
        if self.pending():
            self._warn_of_pending()
            return False
        self._guarded("stop", self._stop)
        return True

    def _notice_fork(self) -> None:
        """Begin anew in a forked child: the background process and the traces so far are those of its parent."""
        if os.getpid() != self._pid:
            self._begin()

    def _begin(self) -> None:
        """Begin in this process, with names that no other process has."""
        self._pid = os.getpid()
        self._cycle = 0
        self._session = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -_STABLE_S
        self._starts = 0
        self._log_path = self._spool.folder / f"{self._session}.log"
        self._log_offset = 0

    def _take(self, profiler: Profiler) -> None:
        """Write the trace of a cycle into the spool, if there is room."""
        self._spool.create()
        self._cycle += 1
        used, free = self._spool.size(), shutil.disk_usage(self._spool.folder).free
        if used + self._last_size > self._spool_bytes or free < self._last_size:
            self._warn_of_no_room(used, free)
            return
        place = launch()
        has_peers = place.rank is not None and place.world_size != 1
        if has_peers and place.run_id is None and self._group is None:
            self._warn(
                "group", "The run has no id, so its ranks meet in no group. Set torchrun's --rdzv-id, or group=."
            )
        identity = ".".join([*_rank_text(place.rank, place.world_size), host(), self._session, f"{self._cycle:04}"])
        group = self._group or place.run_id
        description = {"name": f"{identity}.pt.trace.json.gz", "group": group, "url": public_url(self._url)}
        with self._spool.writing(identity, description) as path:
            profiler.export_chrome_trace(str(path))
            self._last_size = _complete_size(path)
            used = self._spool.size()
            if used > self._spool_bytes:
                raise SpoolFull(f"the folder has {used:,} bytes, more than spool_bytes={self._spool_bytes:,}")

    def _start(self) -> None:
        """Start the background process, unless it runs, or has failed too often."""
        if self._is_running() or (self._process and self._process.returncode == CANNOT_START):
            return
        self._relay()
        self._starts = 1 if time.monotonic() - self._started_at > _STABLE_S else self._starts + 1
        if self._starts > _STARTS_MAX:
            raise ShipperFailed(f"the background process has ended {_STARTS_MAX} times; its messages are above")
        self._spool.create()
        command = [sys.executable, "-m", "tracedock.shipper", str(self._spool.folder)]
        options = ["--trainer", str(self._pid), "--linger", str(self._linger_s), "--nice", str(self._nice)]
        self._started_at = time.monotonic()
        with self._log_path.open("ab") as log:
            # Its output is a file: an open pipe of the trainer would make the reader of that pipe wait for it.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, *options], cwd=self._spool.folder, env=self._environment(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """Return the environment of the background process: the only place of the token."""
        changed = {"TRACEDOCK_URL": self._url}
        if self._token:
            changed["TRACEDOCK_TOKEN"] = self._token
        packages = Path(__file__).resolve().parents[1]
        if packages.name not in ("site-packages", "dist-packages"):  # else the interpreter finds it by itself
            changed["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
        return {**os.environ, **changed}

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _stop(self) -> None:
        """End the background process; what it sends for others goes on with theirs."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=5)
        if self._log_offset == 0 and self._log_path.exists():
            self._log_path.unlink()

    def _relay(self) -> None:
        """Log what the background process has written since the last time."""
        if not self._log_path.exists():
            return
        with self._log_path.open("rb") as file:
            file.seek(self._log_offset)
            written, newline, _ = file.read().rpartition(b"\n")
        self._log_offset += len(written) + len(newline)
        for line in written.decode(errors="replace").splitlines():
            self._warn(line, line)

    def _guarded(self, key: str, action: Any) -> None:
        """Run an action; an error becomes a log message, because the training must go on."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - nothing may reach the training
            number = getattr(error, "errno", None)
            message = f"{error if str(error) else type(error).__name__}. {_CONSEQUENCE[key]} {_advice(error)}"
            self._warn(f"{key} {type(error).__name__} {number}", message)

    def _warn(self, key: str, message: str) -> None:
        if key not in self._logged:
            self._logged.add(key)
            _log.warning("tracedock: %s", message)

    def _warn_of_no_room(self, used: int, free: int) -> None:
        self._warn(
            "room",
            f"{self._spool.folder} has {used:,} of at most {self._spool_bytes:,} bytes, and its disk has {free:,} bytes"
            f" left; the last trace had {self._last_size:,}. The new trace is dropped, and so is each one until the"
            " server has taken others. Check the server, or set spool_bytes or TRACEDOCK_SPOOL.",
        )

    def _warn_of_pending(self) -> None:
        _log.warning(
            "tracedock: traces not yet sent: %d. A background process goes on for at most %.0f s after this program;"
            " `tracedock upload --spool %s` sends what is left.",
            self.pending(), self._linger_s, self._spool.folder,
        )  # fmt: skip

    def _at_exit(self) -> None:
        """Report at the end of the interpreter, and wait for nothing."""
        self._notice_fork()
        self._guarded("log", self._relay)
        if self.pending():
            self._warn_of_pending()


class SpoolFull(Exception):
    """The spool folder has more bytes than it may have."""


class ExportFailed(Exception):
    """The profiler has not written a whole trace."""


class ShipperFailed(Exception):
    """The background process ends again and again."""


def handler(
    url: str | None = None,
    group: str | None = None,
    *,
    token: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    spool_bytes: int = SPOOL_BYTES,
    linger_s: float = LINGER_S,
    nice: int = LOWEST,
) -> Handler:
    """Return the callable for `torch.profiler.profile(on_trace_ready=…)`.

    At the end of each cycle, the profiler writes the trace into a spool folder. A background process with the lowest
    priority compresses it, sends it, and removes it once the server has confirmed its digest. No error is raised:
    each is logged once. While the server is down, the traces stay in the folder.

    Args:
        url: base URL of the server; by default the environment's TRACEDOCK_URL, then http://127.0.0.1:8700.
        group: name of the group; by default the id of the run from torchrun or Slurm.
        token: API token; by default the environment's TRACEDOCK_TOKEN, then none. It is never written to disk.
        spool: path of the folder; by default the environment's TRACEDOCK_SPOOL, then `~/.cache/tracedock/spool`.
        spool_bytes: size of the folder from which on new traces are dropped; those in it are kept.
        linger_s: seconds for which the background process may go on after the end of this process.
        nice: its priority, from 0 for that of this process to 19, which runs only while a processor is idle.
    """
    url = url or os.environ.get("TRACEDOCK_URL") or DEFAULT_URL
    folder = Path(spool or os.environ.get("TRACEDOCK_SPOOL") or _cache() / "tracedock" / "spool")
    return Handler(url, group, token, Spool(folder.absolute()), spool_bytes, linger_s, nice)


def _cache() -> Path:
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a container whose user has no home
        return Path(tempfile.gettempdir()) / f"tracedock-{os.getuid()}"


def _rank_text(rank: int | None, world_size: int | None) -> list[str]:
    """Return the beginning of a name; the server reads the first `rank` and digits of a name as the rank."""
    if rank is None:
        return []
    return [f"rank{rank}" if world_size is None else f"rank{rank}of{world_size}"]


def _advice(error: Exception) -> str:
    if isinstance(error, SpoolFull):
        return "Check the server, profile fewer steps, or raise spool_bytes."
    if isinstance(error, (OSError, ExportFailed)):
        return "Set TRACEDOCK_SPOOL to a folder of yours on a local disk with room."
    return ""


def _complete_size(path: Path) -> int:
    """Return the number of bytes of an exported trace.

    Raises:
        ExportFailed: the trace is missing or truncated, which the profiler itself does not raise.
    """
    if not path.exists():
        raise ExportFailed(f"the profiler has written no trace to {path.parent}: is the disk full?")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        if not file.read().rstrip().endswith(b"}"):
            raise ExportFailed(f"the trace in {path.parent} is truncated after {size:,} bytes: is the disk full?")
    return size

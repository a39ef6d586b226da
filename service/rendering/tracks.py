"""Which process and thread of the engine shows which track of the trace, and under what name.

The engine knows processes and threads by positive 32-bit numbers, and takes thread 0 of a process for its main one
(trace_processor v54). So a track keeps its own numbers where they are such, and gets others where they are not, where
a process of the host has the number of a device, or where it needs more lanes than one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from service.rendering.values import plain
from service.trace.rank import ranks_by_pid
from service.trace.summary import Key

MADE_UP = 2_000_000_000
"""From here on, numbers are given to what has none that the engine takes; Linux has no process beyond 2^22."""


@dataclass(frozen=True)
class Shown:
    """A thread of the engine, and the lane of the trace's track that it shows.

    Attributes:
        pid: of the engine's process; `tid` likewise.
        name: of the thread, if it has one.
        process: the name of the process, if it has one.
        own_pid: the trace's own; `own_tid` likewise.
        rank: whose process it is, where that is known.
        device: whose work it shows, or None.
        stream: likewise.
        lane: from 1 on.
    """

    pid: int
    tid: int
    name: str | None
    process: str | None
    own_pid: Key
    own_tid: Key
    rank: int | None
    device: int | None
    stream: int | None
    lane: int


class ShownTracks:
    """Gives tracks their processes and threads.

    Args:
        summary: of the trace, as the catalog has it.
    """

    def __init__(self, summary: Mapping[str, Any]) -> None:
        self._rank: int | None = summary.get("rank")
        self._ranks = ranks_by_pid(summary.get("ranks", []))
        self._processes = {one["pid"]: one for one in summary["processes"]}
        self._threads = {(one["pid"], one["tid"]): one for one in summary["threads"]}
        self._devices = {one["pid"]: one["device"] for one in summary["threads"] if one.get("device") is not None}
        self._hosts = {one["pid"] for one in summary["threads"] if one.get("host")}
        self._pids: dict[tuple[Key, bool], int] = {}
        self._tids: dict[int, set[int]] = {}
        self._made_up = count(MADE_UP)
        self.shown: list[Shown] = []

    def is_shared(self, pid: Key, tid: Key) -> bool:
        """Whether a track is a host's thread and a device's stream as well, as process 7 and device 7 may have one."""
        track = self._threads.get((pid, tid), {})
        return track.get("device") is not None and bool(track.get("host"))

    def show(self, pid: Key, tid: Key, lane: int, *, on_device: bool) -> Shown:
        """The engine's thread of a track's next lane.

        Args:
            pid: of the track, as the trace has it.
            tid: likewise.
            lane: from 1 on.
            on_device: whether it is the device's side of a track that is shared.
        """
        track, process = self._threads.get((pid, tid), {}), self._processes.get(pid, {})
        is_host = track.get("host", False) and not on_device
        device = None if is_host else self._devices.get(pid)
        rank = self._rank
        if self._ranks:
            rank = self._ranks.get(pid) if isinstance(pid, int) else None
        engine_pid = self._pid(pid, device)
        name = (track.get("name") or "").strip() or (f"stream {tid}" if device is not None else None)
        if lane > 1:
            name = f"{name or tid} · lane {lane}"
        shown = Shown(
            engine_pid, self._tid(engine_pid, tid, lane), name, _process_name(process, pid, device, rank),
            pid, tid, rank, device, tid if device is not None and isinstance(tid, int) else None, lane,
        )  # fmt: skip
        self.shown.append(shown)
        return shown

    def _pid(self, pid: Key, device: int | None) -> int:
        """The number of a host's process, or of a device's; where both would have one, the host keeps it but for 0."""
        side = pid, device is not None
        if side not in self._pids:
            device_keeps = pid in self._devices and (pid == 0 or pid not in self._hosts)
            own = isinstance(pid, int) and 0 <= pid < MADE_UP and device_keeps == (device is not None)
            self._pids[side] = pid if own and isinstance(pid, int) else next(self._made_up)
        return self._pids[side]

    def _tid(self, engine_pid: int, tid: Key, lane: int) -> int:
        used = self._tids.setdefault(engine_pid, set())
        own = isinstance(tid, int) and 0 < tid < MADE_UP and lane == 1 and tid not in used
        number = tid if own and isinstance(tid, int) else next(self._made_up)
        used.add(number)
        return number

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yield the events that name all that is shown."""
        processes = {one.pid: one.process for one in self.shown}
        for pid, process in processes.items():
            if process:
                yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": plain(process)}}
        for one in self.shown:
            if one.name:
                yield {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": one.pid,
                    "tid": one.tid,
                    "args": {"name": plain(one.name)},
                }


def _process_name(process: Mapping[str, Any], pid: Key, device: int | None, rank: int | None) -> str | None:
    name = f"GPU {device}" if device is not None else process.get("name") or process.get("labels")
    if not name and isinstance(pid, str):
        name = pid
    if not name or rank is None or (device is None and name == pid):
        return name
    return name if name.startswith(f"rank {rank} · ") else f"{name} · rank {rank}"  # as those of merged traces do

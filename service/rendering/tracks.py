"""The assignment of a trace's tracks to processes and threads of the engine, with their names.

The engine identifies processes and threads by positive 32-bit numbers, and treats thread 0 of a process as its main
thread (trace_processor v54). A track keeps its own numbers if the engine accepts them. New numbers are assigned
otherwise, for a host process and a device with the same number, and for all lanes of a track after the first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from service.rendering.render_report import EngineTrack
from service.rendering.sanitizing import plain
from service.store.work_tracks import WorkTrack
from service.trace.rank import ranks_by_pid
from service.trace.summary import Key, Process, Summary

FIRST_ASSIGNED = 2_000_000_000
"""First number assigned to tracks that can't keep their own numbers. Linux has no process id above 2^22."""


class TrackAssigner:
    """Assigns processes and threads of the engine to tracks.

    Args:
        summary: the trace's summary from the catalog.
        work_tracks: the tracks of each stream's work. The tid of a stream may be text, such as ``stream 7`` in traces
            of 2021. A stream that they lack has the number of its tid.
    """

    def __init__(self, summary: Summary, work_tracks: Iterable[WorkTrack] = ()) -> None:
        self._rank = summary.rank
        self._ranks = ranks_by_pid(summary.ranks)
        self._processes = {process["pid"]: process for process in summary.processes}
        threads = summary.threads
        self._threads = {(thread["pid"], thread["tid"]): thread for thread in threads}
        self._devices = {thread["pid"]: thread["device"] for thread in threads if thread.get("device") is not None}
        self._hosts = {thread["pid"] for thread in threads if thread.get("host")}
        self._streams: defaultdict[tuple[Key, Key], set[int | None]] = defaultdict(set)
        for work in work_tracks:
            self._streams[work.pid, work.tid].add(work.stream)
        self._pids: dict[tuple[Key, bool], int] = {}
        self._tids: dict[int, set[int]] = {}
        self._assigned = count(FIRST_ASSIGNED)
        self.tracks: list[EngineTrack] = []

    def is_shared(self, pid: Key, tid: Key) -> bool:
        """Return whether a track is both a host thread and a device stream, for example of process 7 and device 7."""
        track = self._threads.get((pid, tid))
        return track is not None and track.get("device") is not None and track.get("host", False)

    def assign(self, pid: Key, tid: Key, lane: int, *, on_device: bool) -> EngineTrack:
        """Assign a thread of the engine to the next lane of a track.

        Args:
            pid: the track's process in the trace.
            tid: the track's thread in the trace.
            lane: number of the lane on its track, from 1.
            on_device: whether the lane is on the device's side of a shared track.
        """
        track, process = self._threads.get((pid, tid)), self._processes.get(pid)
        is_host = track is not None and track.get("host", False) and not on_device
        device = None if is_host else self._devices.get(pid)
        rank = self._rank
        if self._ranks:
            rank = self._ranks.get(pid) if isinstance(pid, int) else None
        engine_pid = self._pid(pid, device)
        stream = self._stream(pid, tid) if device is not None else None
        name = ((track and track.get("name")) or "").strip() or (
            f"stream {tid if stream is None else stream}" if device is not None else None
        )
        if lane > 1:
            name = f"{name or tid} · lane {lane}"
        assigned = EngineTrack(
            engine_pid, self._tid(engine_pid, tid, lane), name, _process_name(process, pid, device, rank),
            pid, tid, rank, device, stream, lane,
        )  # fmt: skip
        self.tracks.append(assigned)
        return assigned

    def _stream(self, pid: Key, tid: Key) -> int | None:
        """Return the stream that a track of a device shows; None if it is not known."""
        streams = self._streams.get((pid, tid), set())
        return next(iter(streams)) if len(streams) == 1 else tid if isinstance(tid, int) else None

    def _pid(self, pid: Key, device: int | None) -> int:
        """Return the engine's process for a host process or a device.

        If both have the same number, the host process keeps it, except that the number 0 stays with the device.
        """
        side = pid, device is not None
        if side not in self._pids:
            device_keeps = pid in self._devices and (pid == 0 or pid not in self._hosts)
            own = isinstance(pid, int) and 0 <= pid < FIRST_ASSIGNED and device_keeps == (device is not None)
            self._pids[side] = pid if own and isinstance(pid, int) else next(self._assigned)
        return self._pids[side]

    def _tid(self, engine_pid: int, tid: Key, lane: int) -> int:
        used = self._tids.setdefault(engine_pid, set())
        own = isinstance(tid, int) and 0 < tid < FIRST_ASSIGNED and lane == 1 and tid not in used
        number = tid if own and isinstance(tid, int) else next(self._assigned)
        used.add(number)
        return number

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yield the events that name the engine's processes and threads."""
        for pid, process in {track.pid: track.process_title for track in self.tracks}.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": plain(process)}}
        for track in self.tracks:
            args = {"name": plain(track.thread_title)}
            yield {"ph": "M", "name": "thread_name", "pid": track.pid, "tid": track.tid, "args": args}


def _process_name(process: Process | None, pid: Key, device: int | None, rank: int | None) -> str | None:
    name = process and (process["name"] or process["labels"])
    if device is not None:
        name = f"GPU {device}"
    if not name and isinstance(pid, str):
        name = pid
    if not name or rank is None or (device is None and name == pid):
        return name
    is_merged = name.startswith(f"rank {rank} · ")  # merged traces have such names already
    return name if is_merged else f"{name} · rank {rank}"

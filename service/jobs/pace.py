"""How fast a job has come further of late, and how long the rest takes if that stays so."""

from collections import deque
from dataclasses import dataclass

from service.streaming.source import Progress

WINDOW_S = 10.0
LEAST_S, LEAST_SHARE = 1.0, 0.01
"""Nothing is said of what has been looked at for less, nor soon of what has done less: the start of a job is slow."""


@dataclass(frozen=True)
class _Mark:
    at: float
    share: float


class Pace:
    """What of a job was done when, within the last `WINDOW_S` seconds.

    Args:
        end: how long the end takes, which tells of nothing any more, where all before it takes 1; None if nobody knows.
    """

    def __init__(self, end: float | None = 0.0) -> None:
        self._end = end
        self._began = 0.0
        self._marks: deque[_Mark] = deque()
        self._seen: tuple[_Mark, _Mark] | None = None  # the first and the last, at once: another thread may ask

    def note(self, progress: Progress, now: float) -> None:
        """Note how far it is at a time, in seconds."""
        share = share_of(progress)
        if share is None:
            return
        if self._marks and (share < self._marks[-1].share or not share):  # it begins, or was begun anew
            self._marks.clear()
        if not self._marks:
            self._began = now
        if len(self._marks) > 1 and now - self._marks[-2].at < WINDOW_S / 100:  # as many marks are enough
            self._marks.pop()
        self._marks.append(_Mark(now, share))
        while now - self._marks[0].at > WINDOW_S and len(self._marks) > 2:
            self._marks.popleft()
        self._seen = self._marks[0], self._marks[-1]

    def left_s(self, now: float) -> float | None:
        """Seconds that the rest takes; None while nobody can know, as where nothing has moved of late."""
        if not self._seen or self._end is None:
            return None
        first, last = self._seen
        if last.share >= 1:
            left = self._end * (last.at - self._began) - (now - last.at)
            return left if left > 0 else None
        took, done = now - first.at, last.share - first.share
        if now - last.at > WINDOW_S or done <= 0 or took < (WINDOW_S if done < LEAST_SHARE else LEAST_S):
            return None
        return (1 - last.share + self._end) * took / done

    def end_seen(self, now: float) -> float | None:
        """How long the end took of a job that is done now, as the next `Pace` of its kind is told; None if unseen."""
        if not self._marks or not (last := self._marks[-1]).share or last.at <= self._began:
            return None
        whole = (last.at - self._began) / last.share
        return max((now - last.at) / whole - (1 - last.share), 0.0)


def share_of(progress: Progress) -> float | None:
    """How much of the whole is done, from 0 to 1; None where nobody knows the whole."""
    if progress.bytes_total:
        return min(progress.bytes / progress.bytes_total, 1.0)
    return min(progress.events / progress.events_total, 1.0) if progress.events_total else None

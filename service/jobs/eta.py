"""Estimate of the remaining time of a job, from its speed in the last seconds."""

from collections import deque
from dataclasses import dataclass

from service.streaming.source import Progress

WINDOW_S = 10.0
"""Seconds of progress that an estimate is based on."""
MIN_S, MIN_SHARE = 1.0, 0.01
"""Minimum time, and minimum share of the work, for an estimate.

Below that share, an estimate needs a whole window of progress, because jobs start slowly.
"""


@dataclass(frozen=True)
class _Mark:
    """The share of the work that was done at a time, in seconds."""

    at: float
    share: float


class EtaEstimator:
    """Estimates the remaining time of a job.

    Args:
        end: duration of the job's final phase, which reports no progress, as a multiple of the time before it. None if
            it is unknown.
    """

    def __init__(self, end: float | None = 0.0) -> None:
        self._end = end
        self._began = 0.0
        self._marks: deque[_Mark] = deque()
        self._first_and_last: tuple[_Mark, _Mark] | None = None  # one attribute, as another thread may read both

    def note(self, progress: Progress, now: float) -> None:
        """Record the progress at a time, in seconds."""
        share = share_of(progress)
        if share is None:
            return
        if self._marks and (share < self._marks[-1].share or not share):  # the job begins, or starts over
            self._marks.clear()
        if not self._marks:
            self._began = now
        if len(self._marks) > 1 and now - self._marks[-2].at < WINDOW_S / 100:  # 100 marks are enough
            self._marks.pop()
        self._marks.append(_Mark(now, share))
        while now - self._marks[0].at > WINDOW_S and len(self._marks) > 2:
            self._marks.popleft()
        self._first_and_last = self._marks[0], self._marks[-1]

    def left_s(self, now: float) -> float | None:
        """Estimate the remaining seconds of the job; None if unknown, for example after a window without progress."""
        if not self._first_and_last or self._end is None:
            return None
        first, last = self._first_and_last
        if last.share >= 1:
            remaining_s = self._end * (last.at - self._began) - (now - last.at)
            return remaining_s if remaining_s > 0 else None
        elapsed, done = now - first.at, last.share - first.share
        if now - last.at > WINDOW_S or done <= 0 or elapsed < (WINDOW_S if done < MIN_SHARE else MIN_S):
            return None
        return (1 - last.share + self._end) * elapsed / done

    def measured_end(self, now: float) -> float | None:
        """Return the measured `end` of a job that is done at this time; None if unknown."""
        if not self._marks or not (last := self._marks[-1]).share or last.at <= self._began:
            return None
        whole = (last.at - self._began) / last.share
        return max((now - last.at) / whole - (1 - last.share), 0.0)


def share_of(progress: Progress) -> float | None:
    """Return the share of the work that is done, from 0 to 1; None if the whole is unknown."""
    if progress.bytes_total:
        return min(progress.bytes / progress.bytes_total, 1.0)
    return min(progress.events / progress.events_total, 1.0) if progress.events_total else None

"""Detection of loads that make no progress."""

FINISH_FACTOR = 20
"""Limit of the processor time after the last byte, as a multiple of that before it; 12 M events took a factor of 5."""

ASLEEP_FACTOR, ASLEEP_CPU_S = 2, 1.0
"""Conditions for an engine to be asleep: the load has waited for it for longer than this multiple of `stall_s`, and
since its last progress it has used less than this many seconds of processor time."""


class StallDetector:
    """Distinguishes a stalled load from a slow one by the processor time that it uses without progress.

    An engine that waits for its source uses no processor time. An engine that has work but uses none is asleep.
    After the last byte, the limit grows in proportion to the processor time used until then.

    Args:
        stall_s: processor seconds that a load may use without progress.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._progress: tuple[int, bool] | None = None
        self._cpu_at_progress_s = 0.0

    def is_stalled(self, loaded_bytes: int, cpu_s: float, *, is_fed: bool, waited_s: float = 0.0) -> bool:
        """Return whether the load makes no progress.

        Args:
            loaded_bytes: bytes that the engine has taken.
            cpu_s: seconds of processor time that the engine has used.
            is_fed: whether these bytes were the whole document.
            waited_s: seconds since the engine received its last piece of work.
        """
        if self._progress != (loaded_bytes, is_fed):
            self._progress, self._cpu_at_progress_s = (loaded_bytes, is_fed), cpu_s
        finish_s = FINISH_FACTOR * self._cpu_at_progress_s if is_fed else 0.0
        used_s = cpu_s - self._cpu_at_progress_s
        is_asleep = waited_s > ASLEEP_FACTOR * self._stall_s and used_s < ASLEEP_CPU_S
        return is_asleep or used_s > self._stall_s + finish_s

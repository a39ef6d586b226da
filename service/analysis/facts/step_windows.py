"""When the steps of a rank are: on the host, and until the devices are done with what was launched in them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from service.analysis.facts.activity import Activity, Rules
from service.analysis.facts.intervals import Ints
from service.analysis.parameters import Parameters
from service.trace.errors import NotApplicable

TAIL = 0.8
"""TensorBoard takes a last step for cut off that launched less of what the one before it did than this."""


class StepParameters(Parameters):
    """What a step is, and by whose rules it is told what it does."""

    bounds: Literal["device", "host"] = Field(
        "device",
        description="where a step ends: `device` when the host and all that was launched in it are done, and the next"
        " one starts there; `host` as its annotation does",
    )
    last_step: Literal["keep", "drop"] = Field("keep", description="`drop` leaves out the last of several steps")
    rules: Rules = Field(
        "exact",
        description="`tensorboard` goes by the TensorBoard plugin: only five operators of NCCL and of Gloo communicate,"
        " drivers are no runtime, a GPU's annotations are CPU time, and last steps that seem cut off are left out",
    )


@dataclass(frozen=True)
class Windows:
    """The steps of a rank, in order of time.

    Args:
        numbers: of the steps, -1 of one that stands for a trace without any.
        starts: in ns.
        ends: likewise.
        host_starts: of their annotations.
        host_ends: likewise.
    """

    numbers: Ints
    starts: Ints
    ends: Ints
    host_starts: Ints
    host_ends: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, count: int) -> "Windows":
        """The first ones."""
        return Windows(*(each[:count] for each in vars(self).values()))

    def labels(self) -> list[int | None]:
        """The numbers of steps as they stand in tables."""
        return [None if number < 0 else number for number in self.numbers.tolist()]


def windows_of(activity: Activity, parameters: StepParameters) -> Windows:
    """The steps of a rank; one over all that it does where there is none.

    Raises:
        NotApplicable: it does nothing.
    """
    windows = _on_host(activity.numbers, activity.steps.starts, activity.steps.ends)
    if not len(windows):
        windows = _over_all(activity, parameters)
    if parameters.bounds == "device":
        windows = _on_devices(activity, windows, parameters)
    return windows.first(len(windows) - 1) if parameters.last_step == "drop" and len(windows) > 1 else windows


def _on_host(numbers: Ints, starts: Ints, ends: Ints) -> Windows:
    return Windows(numbers, starts, ends, starts, ends)


def _over_all(activity: Activity, parameters: StepParameters) -> Windows:
    """One window over all; to TensorBoard it is over what operators span."""
    found = activity.op_bounds if parameters.rules == "tensorboard" else []
    found = found or [*activity.bounds, *activity.work.bounds()]
    if not found:
        raise NotApplicable("Nothing in this trace takes time, by these rules.")
    return _on_host(*(np.array([one], np.int64) for one in (-1, min(found), max(found))))


def _on_devices(activity: Activity, host: Windows, parameters: StepParameters) -> Windows:
    """The steps as the devices see them: each begins where the one before it ended, and ends with its last work."""
    tensorboard = parameters.rules == "tensorboard"
    work, steps = activity.work, _steps_of_work(activity, host, whole=tensorboard)
    inside = steps >= 0
    if not inside.any():
        return host
    done = np.full(len(host), np.iinfo(np.int64).min)
    np.maximum.at(done, steps[inside], work.ends[inside])
    previous = int(host.starts[0])
    if (steps == 0).any():
        before = work.ends[~inside & (work.ends < work.starts[steps == 0].min())]
        previous = max(previous, int(before.max())) if len(before) else previous
    starts, ends = host.starts.tolist(), host.ends.tolist()
    for step, last in enumerate(done.tolist()):
        starts[step] = max(previous, starts[step])
        ends[step] = previous = max(starts[step], ends[step], last)
    windows = Windows(host.numbers, np.array(starts), np.array(ends), host.starts, host.ends)
    return windows.first(_kept(np.bincount(steps[inside], minlength=len(host)))) if tensorboard else windows


def _steps_of_work(activity: Activity, host: Windows, *, whole: bool) -> Any:
    """The place of the step of each piece of work, -1 for none.

    It is the step in whose annotation the launch begins; without a launch, that in which the work does. To TensorBoard
    it is the step in which a launch lies from start to end, if `whole`.
    """
    calls = activity.calls
    if whole:
        steps = np.searchsorted(host.host_starts, calls.starts, side="right") - 1
        return np.where(activity.launched & (steps >= 0) & (calls.ends <= host.host_ends[steps]), steps, -1)
    begun = np.where(activity.launched, calls.starts, activity.work.starts)
    steps = np.searchsorted(host.host_starts, begun, side="right") - 1
    return np.where((steps >= 0) & (begun < host.host_ends[steps]), steps, -1)


def _kept(launched: Any) -> int:
    """How many steps TensorBoard keeps, of the number of kernels that each launched."""
    if len(launched) < 2:
        return len(launched)
    last = int(np.flatnonzero(launched)[-1])
    return last if last > 0 and launched[last - 1] * TAIL > launched[last] else last + 1

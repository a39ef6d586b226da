"""Time windows of a rank's steps: by the host's annotations, or until the devices finish the work launched in them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from service.analysis.facts.activity import Activity, Rules
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import Parameters
from service.attribution.rank_steps import DeviceBounds, steps_at, steps_of_numbers
from service.trace.errors import NotApplicable

if TYPE_CHECKING:
    from service.cutting.criteria import IntervalSet  # loads numba, which describing questions does without

TAIL = 0.8
"""Minimum number of pieces of work that the last step launches, as a share of the previous step's number.

TensorBoard drops a last step that launches less.
"""

StepBounds = Literal["device", "host"]
"""The rule for the bounds of steps."""


class StepParameters(Parameters):
    """The bounds of steps, and the rules by which their time is categorized."""

    bounds: StepBounds = Field(
        "device",
        description="bounds of a step: `device` ends it when the host and all work launched in it are done, and starts"
        " the next step there; `host` takes its annotation",
    )
    last_step: Literal["keep", "drop"] = Field("keep", description="`drop` leaves out the last of several steps")
    rules: Rules = Field(
        "exact",
        description="`tensorboard` follows the TensorBoard plugin: only five operators of NCCL and of Gloo count as"
        " communication, driver calls do not count as runtime, annotations on a GPU count as CPU time, and last steps"
        " that seem cut off are left out",
    )


@dataclass(frozen=True)
class Windows:
    """The steps of a rank, in order of time.

    Args:
        numbers: number of each step; -1 for the window that stands for a trace without steps.
        starts: start of each step in ns.
        ends: end of each step in ns.
        host_starts: start of each step's annotation.
        host_ends: end of each step's annotation.
    """

    numbers: Ints
    starts: Ints
    ends: Ints
    host_starts: Ints
    host_ends: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, count: int) -> "Windows":
        """Return the first steps."""
        return self.only(slice(count))

    def only(self, chosen: Any) -> "Windows":
        """Return the steps at some indices, or those that a mask flags."""
        return Windows(*(column[chosen] for column in vars(self).values()))

    def within(self, time: "IntervalSet") -> "Windows":
        """Return the parts of the steps in the time of a selection; steps without one are left out."""
        inside = self.only(time.overlaps(self.starts, self.ends))
        starts, ends = time.clipped(inside.starts, inside.ends)
        return replace(inside, starts=starts, ends=ends)

    def labels(self) -> list[int | None]:
        """Return the numbers of steps for tables: None for a trace without steps."""
        return [None if number < 0 else number for number in self.numbers.tolist()]


def windows_of(scope: Scope, activity: Activity, parameters: StepParameters) -> Windows:
    """Return the steps of a rank with an activity; without steps, one window over its whole activity.

    Steps of a selection or a part of a trace are those of the whole rank, cut to the time of the selection.

    Raises:
        NotApplicable: the rank has no activity, or none of its steps lies in the selected time.
    """
    key = ("windows", parameters.rules, parameters.bounds, parameters.last_step)
    return scope.cached(key, lambda: _windows(activity, parameters))


def _windows(activity: Activity, parameters: StepParameters) -> Windows:
    selected = activity.selected
    windows = _selected(activity, parameters) if parameters.rules == "exact" else None
    if windows is None:
        windows = _on_host(activity.numbers, activity.steps.starts, activity.steps.ends)
        if not len(windows):
            windows = _whole_trace(activity, parameters)
        if parameters.bounds == "device":
            windows = _on_devices(activity, windows, parameters)
    if selected and not len(windows := windows.within(selected.time)):
        raise NotApplicable("No step lies in the selected time.")
    return windows.first(len(windows) - 1) if parameters.last_step == "drop" and len(windows) > 1 else windows


def _selected(activity: Activity, parameters: StepParameters) -> Windows | None:
    """Return the steps of the whole rank that a selection or a part of a trace is about; None if there are none."""
    selected = activity.selected
    steps = selected.ranks.get(activity.rank) if selected else None
    if selected is None or steps is None:
        return None
    if not selected.is_chosen:
        steps = steps.only(np.isin(steps.numbers, activity.numbers))
    if not len(steps.numbers):
        return None
    bounds = steps[3:] if parameters.bounds == "device" else steps[1:3]
    return Windows(steps.numbers, *bounds, steps.starts, steps.ends)


def _on_host(numbers: Ints, starts: Ints, ends: Ints) -> Windows:
    return Windows(numbers, starts, ends, starts, ends)


def _whole_trace(activity: Activity, parameters: StepParameters) -> Windows:
    """Return one window over all activity or, by TensorBoard's rules, over the operators."""
    bounds = activity.op_bounds if parameters.rules == "tensorboard" else []
    bounds = bounds or [*activity.bounds, *activity.work.bounds()]
    if not bounds:
        raise NotApplicable("Nothing in this trace takes time, by these rules.")
    return _on_host(*(np.array([value], np.int64) for value in (-1, min(bounds), max(bounds))))


def _on_devices(activity: Activity, host: Windows, parameters: StepParameters) -> Windows:
    """Extend steps to the end of their work on devices; see `DeviceBounds`."""
    tensorboard = parameters.rules == "tensorboard"
    work, steps = activity.work, _steps_of_work(activity, host, whole=tensorboard)
    inside = steps >= 0
    if not inside.any():
        return host
    bounds = DeviceBounds(host.numbers, host.starts, host.ends)
    bounds.add_of_steps(steps, work.starts, work.ends)
    windows = Windows(host.numbers, *bounds.on_devices(), host.starts, host.ends)
    return windows.first(_complete_steps(np.bincount(steps[inside], minlength=len(host)))) if tensorboard else windows


def _steps_of_work(activity: Activity, host: Windows, *, whole: bool) -> Any:
    """Return the index of the step of each piece of work, or -1.

    Work belongs to the step in whose annotation on its thread its launch begins; work without a launch, to the step in
    whose annotation the work begins. If `whole`, as in TensorBoard, the annotation must contain the whole launch, and
    work without a launch has no step.
    """
    calls = activity.calls
    if whole:
        steps = np.searchsorted(host.host_starts, calls.starts, side="right") - 1
        return np.where(activity.launched & (steps >= 0) & (calls.ends <= host.host_ends[steps]), steps, -1)
    starts = np.where(activity.launched, calls.starts, activity.work.starts)
    if len(activity.numbers):
        return steps_of_numbers(host.numbers, host.host_starts, activity.work_steps, starts)
    return steps_at(host.host_starts, host.host_ends, starts)


def _complete_steps(launched: Any) -> int:
    """Return the count of steps that TensorBoard keeps, given how many pieces of work each step launched."""
    if len(launched) < 2:
        return len(launched)
    last = int(np.flatnonzero(launched)[-1])
    return last if last > 0 and launched[last - 1] * TAIL > launched[last] else last + 1

"""How well is the GPU used?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import activity_of
from service.analysis.facts.device_properties import capability_of, properties_of, whole_number
from service.analysis.facts.intervals import Ints, covered, percentage
from service.analysis.facts.kernel_shapes import kernel_shapes, with_shapes
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, windows_of
from service.analysis.facts.tensor_cores import on_tensor_cores
from service.analysis.question import Question, Tables
from service.analysis.table import DEVICE, RANK, Column, count, ns, pct, table_of_rows, word
from service.trace.kernel_names import uses_matrix_cores

COLUMNS = (
    RANK,
    DEVICE,
    word("name", "of the GPU"),
    Column("memory_bytes", "int", "bytes", "that the GPU has"),
    word("compute_capability", "of the GPU"),
    count("sm_count", "streaming multiprocessors of the GPU"),
    ns("start", "of the first step"),
    ns("end", "of the last step"),
    ns("kernel", "from start to end, in which a kernel runs"),
    ns("busy", "from start to end, in which a kernel, a copy or a memset runs"),
    pct("utilization", "of the time from start to end, with a kernel"),
    pct("busy", "of the time from start to end, with any work"),
    pct("sm_efficiency", "estimated: mean from start to end of the blocks per SM of running kernels, at most 1"),
    pct("occupancy", "estimated: mean of the occupancy that kernels achieve, over their durations from start to end"),
    pct(
        "tensor_core",
        "of the kernels' durations from start to end: of those whose names say that they use matrix cores",
    ),
    pct("tensor_core_unknown", "of the kernels' durations from start to end: of those whose names no pattern knows"),
)


_KERNELS = """
SELECT
    device, start_ns, end_ns, coalesce(uses, -1) AS uses,
    coalesce(estimated_blocks, -1) AS blocks, coalesce(estimated_occupancy, -1) AS occupancy
FROM {kernels} AS kernels JOIN shapes USING (shape) LEFT JOIN cores ON cores.name = kernels.name
"""


def efficiency(starts: Ints, ends: Ints, blocks: Any) -> float:
    """Integrate the blocks per SM of running kernels over time, in ns; at each moment their sum counts at most 1."""
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.concatenate([blocks, -blocks])[order])[:-1]
    return float((np.clip(running, 0, 1) * np.diff(times[order])).sum())


def answer(scope: Scope, parameters: StepParameters) -> Tables:
    """Return the properties and the utilization of each GPU during the steps."""
    with kernel_shapes(scope):
        activity = activity_of(scope, parameters.rules, categories=False)
        windows = windows_of(scope, activity, parameters)
        scope.define_device_events()
    first, last = int(windows.starts[0]), int(windows.ends[-1])
    kernels = _Kernels(_timed_kernels(scope, parameters), first, last)
    devices = {device["id"]: device for device in scope.summary.devices}
    properties = {whole_number(device.get("id")): device for device in reversed(properties_of(scope))}
    rows = []
    for device in np.unique(activity.devices).tolist():
        facts = _facts(devices.get(device, {}), properties.get(device, {}))
        busy = activity.work.only(activity.devices == device).coverage()
        busy_ns = int(busy.between(windows.starts[:1], windows.ends[-1:])[0])
        kernel_ns, *estimates = kernels.of(device)
        shares = (percentage(kernel_ns, last - first), percentage(busy_ns, last - first), *estimates)
        rows.append([scope.rank, None if device < 0 else device, *facts, first, last, kernel_ns, busy_ns, *shares])
    return {"gpus": table_of_rows(COLUMNS, rows)}


def _timed_kernels(scope: Scope, parameters: StepParameters) -> pa.Table:
    """Return the times of kernels, how well they fill a GPU, and their use of tensor cores: 1, 0, or -1 if unknown."""
    of_name = on_tensor_cores if parameters.rules == "tensorboard" else uses_matrix_cores
    names = scope.kernel_names
    uses = [-1 if (use := of_name(name)) is None else int(use) for name in names]
    scope.db.register("cores", pa.table({"name": pa.array(names, pa.string()), "uses": pa.array(uses, pa.int8())}))
    kernels = scope.table(_KERNELS.format(kernels=with_shapes(scope, "device_events")))
    scope.db.unregister("cores")
    return kernels


class _Kernels:
    """Kernels, clipped to a window of time.

    Args:
        kernels: the kernels to clip, as `_KERNELS` selects them.
        first: start of the window, in ns.
        last: end of the window, in ns.
    """

    def __init__(self, kernels: pa.Table, first: int, last: int) -> None:
        self.whole = last - first
        self.devices = kernels["device"].fill_null(-1).to_numpy()
        self.starts, self.ends = (np.clip(kernels[name].to_numpy(), first, last) for name in ("start_ns", "end_ns"))
        self.uses = kernels["uses"].to_numpy()
        self.blocks, self.occupancy = (
            np.nan_to_num(kernels[name].to_numpy(), posinf=-1) for name in ("blocks", "occupancy")
        )

    def of(self, device: int) -> tuple[int, float | None, float | None, float | None, float | None]:
        """Return the time of kernels on a device, SM efficiency, occupancy, and tensor core shares: used, unknown."""
        on_device = self.devices == device
        starts, ends, blocks, occupancy = (
            column[on_device] for column in (self.starts, self.ends, self.blocks, self.occupancy)
        )
        durations, placed, timed = ends - starts, blocks > 0, occupancy >= 0
        efficient = efficiency(starts[placed], ends[placed], blocks[placed]) if placed.any() else None
        measured = float(durations[timed].sum())
        used, unknown = (
            percentage(float(durations[self.uses[on_device] == use].sum()), float(durations.sum())) for use in (1, -1)
        )
        return (
            covered(starts, ends),
            None if efficient is None else percentage(efficient, self.whole),
            float((occupancy[timed] * durations[timed]).sum()) / measured if measured else None,
            used,
            unknown,
        )


def _facts(device: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Any]:
    """Return the name, memory, compute capability and number of SMs of a GPU, None if unknown."""
    sms = whole_number(properties.get("numSms"))
    return [device.get("name"), device.get("memory_bytes"), capability_of(properties), sms]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no work on a GPU."""
    return scope.no_work_reason


QUESTION = Question(
    name="gpu_summary",
    short_question="How well is the GPU used?",
    definition="Of each GPU, from the start of the first step to the end of the last: utilization is the share of the"
    " time with a kernel; SM efficiency is the mean of the blocks per SM of all kernels at once, at most 1;"
    " occupancy is the kernels' mean, weighted by duration. Blocks per SM and occupancy are the profiler's estimates.",
    source="https://github.com/pytorch/kineto/blob/041e7ce99f1562dd81232ee58b7c454ef16bfae2/tb_plugin/"
    "torch_tb_profiler/profiler/gpu_metrics_parser.py",
    tables={"gpus": COLUMNS},
    parameters=StepParameters,
    inapplicable_reason=missing,
    answer=answer,
)

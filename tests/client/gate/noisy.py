"""Traces of a simulated training loop with noise: each step has a forward and a backward pass and an all-reduce."""

import random
from typing import Any

from tests.analysis.gpu import call, step, work

Event = dict[str, Any]

FORWARD, BACKWARD, REDUCE = "gemm_forward", "gemm_backward", "ncclDevKernel_AllReduce_Sum_bf16"
KERNELS = 6
"""Kernels of a forward pass, and of a backward pass."""


def run_events(seed: int, *, steps: int = 15, forward: float = 1.0, noise: float = 0.02) -> list[Event]:
    """Return the events of a run; times are in µs.

    Args:
        seed: seed of the noise.
        steps: number of steps.
        forward: factor on the duration of each kernel of the forward pass.
        noise: standard deviation of the logarithm of each kernel's duration.
    """
    noisy = random.Random(seed)
    events: list[Event] = []
    now, correlation = 1000.0, 0
    for number in range(steps):
        begin = now
        device = begin + 20
        kernels = [(FORWARD, 100 * forward)] * KERNELS + [(BACKWARD, 200)] * KERNELS + [(REDUCE, 150)]
        for place, (name, mean) in enumerate(kernels):
            correlation += 1
            duration = round(mean * noisy.lognormvariate(0, noise), 3)
            events.append(call(round(begin + 10 + place, 3), correlation, dur=0.5))
            events.append(work(round(device, 3), duration, name=name, correlation=correlation))
            device += duration + 1
        now = device + 5
        events.append(step(number, round(begin, 3), round(now - begin, 3)))
        now += 1
    return events

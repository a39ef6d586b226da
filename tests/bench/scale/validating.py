"""Comparison of simulated ingests with real ones of this machine."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench.fleet import measured_workers
from tests.bench.scale.parameters import GB, Assumptions, Costs, Line, Work
from tests.bench.scale.simulation import simulate

LOCAL = Assumptions(store_gb_s=1e6, worker_gb_s=1e6, lifetime_s=1e9, start_s=0.0, deaths_per_hour=0.0)
"""This machine: workers run already, and the time of reading and writing its disk is part of a task's time."""


def validate(folder: Path, costs: Costs, say: Callable[[str], None]) -> None:
    """Compare ingests by one worker and by two with the simulation.

    The machine may be slower now than when the costs were measured, or busy with other work. So there is a second
    simulation with the mean time that the tasks of these runs took: its error is that of all but the tasks.
    """
    for workers, runs in measured_workers(folder).items():
        measured, task_s = (
            statistics.median(values) for values in zip(*((r.seconds, r.task_s) for r in runs), strict=True)
        )
        work = Work(runs[0].ranks, runs[0].trace_bytes / GB, workers)
        of_task = replace(costs, reading=Line(task_s, 0), facts=Line(0, 0), answers=Line(0, 0))
        from_costs, from_tasks = (simulate(work, each, LOCAL).wall_s for each in (costs, of_task))
        say(
            f"{work.ranks} traces of {1000 * work.gigabytes:.1f} MB, {workers} workers: measured {measured:.1f} s;"
            f" simulated from the costs {from_costs:.1f} s ({from_costs / measured - 1:+.1%}), and from the time of"
            f" these tasks, {task_s:.3f} s each, {from_tasks:.1f} s ({from_tasks / measured - 1:+.1%})"
        )

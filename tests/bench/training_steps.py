"""A training program that times its steps after a traced cycle; `torchrun` starts it for `tests.bench.training`.

    torchrun --nproc-per-node 2 training_steps.py TIMES_FOLDER --pairs 20

Cycles come in pairs: one gives its trace to `tracedock.handler`, one only exports it. Which one is first alternates. A
cycle begins once nothing waits for compression, so that the handler's work falls into its own cycle.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import tracedock
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

ACTIVE_STEPS = 20
TIMED_STEPS = 40
PAUSE_S = 0.05


class Training:
    """A small network, trained on all ranks."""

    def __init__(self) -> None:
        layers = [nn.Linear(512, 512) for _ in range(8)]
        self._model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, 16)))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._batch, self._target = torch.randn(64, 512), torch.randn(64, 16)

    def step(self) -> None:
        """Train one step."""
        nn.functional.mse_loss(self._model(self._batch), self._target).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def cycle(self, handler: Callable[[profile], None] | None, plain: Path) -> tuple[float, list[float]]:
        """Trace some steps, export the trace, and return the seconds of the export and of each step after it."""
        with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
            for _ in range(ACTIVE_STEPS):
                self.step()
        dist.barrier()
        began = time.perf_counter()
        if handler is None:
            profiler.export_chrome_trace(str(plain))
        else:
            handler(profiler)
        exported = time.perf_counter() - began
        dist.barrier()
        times = []
        for _ in range(TIMED_STEPS):
            began = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - began)
        plain.unlink(missing_ok=True)  # the next export makes a new file, as that of the handler does
        return exported, times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    plain = options.folder / f"plain{rank}.json"
    spool = Path(os.environ["TRACEDOCK_SPOOL"])
    send = tracedock.handler(linger_s=1)
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {0})
    training = Training()
    training.cycle(None, plain)
    training.cycle(send, plain)
    pairs = []
    for pair in range(options.pairs):
        cycles = {}
        for kind in ("handler", "export") if pair % 2 else ("export", "handler"):
            while any(path.suffix == ".json" and ".pt.trace" in path.name for path in spool.iterdir()):
                time.sleep(PAUSE_S)
            dist.barrier()
            cycles[kind] = training.cycle(send if kind == "handler" else None, plain)
        pairs.append(cycles)
    (options.folder / f"times{rank}.json").write_text(json.dumps(pairs))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

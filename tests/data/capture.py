"""Capture this folder's traces with `torch.profiler` on the CPU.

    pip install torch==2.13.0 numpy
    cd /opt/capture && cp .../tests/data/capture.py . && python capture.py

The traces contain paths relative to the working folder, so run this script in a folder whose name may be published.
Every run has new times and ids: after a capture, write the counts that this script prints into README.md.
"""

import gzip
import json
import os
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HOST, PORT = "127.0.0.1", "29511"


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, target: Tensor) -> None:
    """Run one training step, with annotations around the forward and backward passes."""
    optimizer.zero_grad()
    with record_function("## forward ##"):
        loss = nn.functional.mse_loss(model(batch), target)
    with record_function("## backward ##"):
        loss.backward()
    optimizer.step()


def perceptron() -> nn.Module:
    """Return a network that is small enough for a small trace."""
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))


def save(profiler: profile, name: str) -> None:
    """Export a trace, compress it without a timestamp, and print the counts of its events."""
    plain = Path(name)
    profiler.export_chrome_trace(name)
    text = plain.read_bytes()
    Path(f"{name}.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    plain.unlink()
    events = json.loads(text)["traceEvents"]
    counts = Counter(f"{event['ph']}|{event.get('cat', '')}" for event in events)
    print(f"{name}.gz", len(events), dict(sorted(counts.items())), flush=True)  # noqa: T201 a script reports


def train(name: str, *, model: nn.Module, steps: int, **options: bool) -> None:
    """Train `model`, and trace `steps` steps after one waiting step and one warm-up step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(16, 32), torch.randn(16, 8)
    plan = schedule(wait=1, warmup=1, active=steps, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        on_trace_ready=lambda profiler: save(profiler, name),
        **options,
    ) as profiler:
        for _ in range(2 + steps):
            train_step(model, optimizer, batch, target)
            profiler.step()


def rank(number: int, world_size: int) -> None:
    """Run one process of a data-parallel job over gloo."""
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "lo"}
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=world_size)
    model = DistributedDataParallel(perceptron())
    train(f"cpu_gloo_rank{number}_of_{world_size}.pt.trace.json", model=model, steps=2)
    dist.destroy_process_group()


def main() -> None:
    """Capture all traces into the working folder."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("torch", torch.__version__, "python", sys.version.split()[0])  # noqa: T201 a script reports
    train("cpu_train_steps.pt.trace.json", model=perceptron(), steps=4, record_shapes=True)
    stacks = {"with_stack": True, "profile_memory": True, "with_modules": True}
    train("cpu_stack_memory.pt.trace.json", model=perceptron(), steps=2, record_shapes=True, **stacks)
    mp.spawn(rank, args=(2,), nprocs=2)


if __name__ == "__main__":
    main()

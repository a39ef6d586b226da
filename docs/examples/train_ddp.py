"""Train a small network on all ranks, and send a trace of each rank to Tracedock.

torchrun --nproc-per-node 2 train_ddp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import tracedock
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def train(steps: int) -> None:
    """Train for some steps; the profiler records two of every twenty."""
    torch.manual_seed(dist.get_rank())
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])

    with (
        tracedock.handler() as send,  # waits at the end, for at most a minute, until the server has all traces
        profile(
            activities=activities,
            schedule=schedule(wait=17, warmup=1, active=2),
            on_trace_ready=send,
        ) as profiler,
    ):
        for _ in range(steps):
            batch, target = torch.randn(64, 256, device=device), torch.randn(64, 16, device=device)
            with record_function("## forward ##"):
                loss = nn.functional.mse_loss(model(batch), target)
            with record_function("## backward ##"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()


def main() -> None:
    """Join the run that torchrun or Slurm started, and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

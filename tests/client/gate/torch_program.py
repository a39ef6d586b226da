"""A training program on the CPU for the tests of the gate; it runs where torch is installed.

    python torch_program.py trace.json --forwards 1

It writes a trace of `STEPS` steps. `--forwards 2` computes the forward pass twice, as a slower model would.
"""

import argparse

import torch
from torch.profiler import ProfilerActivity, profile, schedule

WARMUP = 4
STEPS = 24


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("--forwards", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6)), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(256, 512), torch.randint(0, 10, (256,))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WARMUP, active=STEPS, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(options.trace),
    ) as profiler:
        for _ in range(WARMUP + STEPS):
            with torch.profiler.record_function("forward"):
                for _ in range(options.forwards):
                    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()


if __name__ == "__main__":
    main()

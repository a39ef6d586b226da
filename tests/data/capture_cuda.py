"""Capture this folder's traces, memory snapshots and figures of torch on one CUDA GPU.

    cd /opt/capture && cp .../tests/data/capture_cuda.py . && python capture_cuda.py

The files contain paths relative to the working folder, so run this script in a folder whose name may be published.
Every run has new times and ids: after a capture, write the counts that this script prints into README.md.
"""

import gzip
import json
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
FIGURES = Path("figures")
HOST, PORT = "127.0.0.1", "29512"
BATCH, LENGTH, WIDTH, CLASSES = 8, 64, 128, 16
SITE_PACKAGES = str(Path(torch.__file__).parents[1]) + "/"
STANDARD_LIBRARY = str(Path(os.__file__).parent) + "/"


class Training:
    """A transformer of two layers in bfloat16 autocast; the next batch is copied on a stream of its own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.model: nn.Module = nn.Sequential(encoder, nn.Flatten(), nn.Linear(LENGTH * WIDTH, CLASSES)).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.copies = torch.cuda.Stream()
        self.batch = self.next_batch()

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Copy a batch to the GPU on the stream of copies."""
        inputs, target = torch.randn(BATCH, LENGTH, WIDTH), torch.randint(CLASSES, (BATCH,))
        with record_function("## next batch ##"), torch.cuda.stream(self.copies):
            return inputs.pin_memory().cuda(non_blocking=True), target.pin_memory().cuda(non_blocking=True)

    def step(self) -> None:
        """Run one training step."""
        inputs, target = self.batch
        torch.cuda.current_stream().wait_stream(self.copies)
        for tensor in self.batch:
            tensor.record_stream(torch.cuda.current_stream())
        self.batch = self.next_batch()
        with record_function("## forward ##"), torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(inputs), target)
        with record_function("## backward ##"):
            loss.backward()
        with record_function("## optimizer ##"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        loss.item()


def write(path: Path, content: bytes) -> None:
    """Write a file, compressed without a time where its name ends in .gz."""
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
    print(path, path.stat().st_size, flush=True)  # noqa: T201 a script reports


def save(profiler: profile, name: str) -> None:
    """Export a trace and torch's own sums of its events, and print the counts of its events."""
    plain = Path(f"{name}.json")
    profiler.export_chrome_trace(str(plain))
    text = plain.read_bytes()
    plain.unlink()
    write(Path(f"{name}.pt.trace.json.gz"), text)
    events = json.loads(text)["traceEvents"]
    counts = Counter(f"{event['ph']}|{event.get('cat', '')}" for event in events)
    print(len(events), dict(sorted(counts.items())), flush=True)  # noqa: T201 a script reports
    write(FIGURES / f"{name}.key_averages.json.gz", json.dumps(averages(profiler)).encode())


def averages(profiler: profile) -> list[dict[str, Any]]:
    """Return torch's sums of the events of each name, in microseconds and bytes."""
    return [
        {
            "key": event.key,
            "is_of_a_device": event.device_type == DeviceType.CUDA,
            "is_user_annotation": event.is_user_annotation,
            "count": event.count,
            "self_cpu": event.self_cpu_time_total,
            "cpu_total": event.cpu_time_total,
            "self_device": event.self_device_time_total,
            "device_total": event.device_time_total,
            "self_cpu_mem": event.self_cpu_memory_usage,
            "cpu_mem": event.cpu_memory_usage,
            "self_device_mem": event.self_device_memory_usage,
            "device_mem": event.device_memory_usage,
        }
        for event in profiler.key_averages()
    ]


def trace(name: str, step: Callable[[], object], *, steps: int, **options: Any) -> None:
    """Trace `steps` steps after one waiting step and one warm-up step."""
    with profile(
        activities=ACTIVITIES,
        schedule=schedule(wait=1, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda profiler: save(profiler, name),
        **options,
    ) as profiler:
        for _ in range(2 + steps):
            step()
            profiler.step()


def train_steps() -> None:
    """Trace a training loop, with the graph of its operators in an execution trace."""
    training = Training()
    training.step()
    observer = ExecutionTraceObserver().register_callback("execution_trace.json")
    trace("cuda_train_steps", training.step, steps=2, record_shapes=True, execution_trace_observer=observer)
    text = Path("execution_trace.json").read_bytes()
    Path("execution_trace.json").unlink()
    write(FIGURES / "cuda_train_steps.execution_trace.json.gz", text)


def stack_memory() -> None:
    """Trace one step with stacks and memory, and record the allocator's history of the same steps."""
    training = Training()
    training.step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    options = {"record_shapes": True, "with_stack": True, "profile_memory": True}
    trace("cuda_stack_memory", training.step, steps=1, **options)
    torch.cuda.synchronize()
    figures = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    write(FIGURES / "cuda_stack_memory.pickle.gz", pickle.dumps(relative(snapshot)))
    kinds = ("active", "allocated", "requested", "reserved")
    names = [f"{kind}_bytes.all.{moment}" for kind in kinds for moment in ("current", "peak")]
    write(FIGURES / "cuda_stack_memory.memory_stats.json", json.dumps({name: figures[name] for name in names}).encode())


def relative(snapshot: Any) -> Any:
    """Return a snapshot whose frames name files relative to the folders of the packages and of this script."""
    if isinstance(snapshot, dict):
        changed = {key: relative(value) for key, value in snapshot.items()}
        if isinstance(name := changed.get("filename"), str):
            for folder in (SITE_PACKAGES, STANDARD_LIBRARY, f"{Path.cwd()}/"):
                name = name.removeprefix(folder)
            changed["filename"] = name
        return changed
    return [relative(value) for value in snapshot] if isinstance(snapshot, list) else snapshot


def graph_replays() -> None:
    """Trace replays of a CUDA graph of a forward pass, beside kernels that are launched one by one."""
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()
    inputs, side = torch.randn(64, 256, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        model(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        outputs = model(inputs)

    def step() -> None:
        inputs.copy_(torch.randn(64, 256))
        for _ in range(3):
            graph.replay()
        outputs.square().mean().item()

    step()
    trace("cuda_graph_replays", step, steps=3, record_shapes=True)


def nccl() -> None:
    """Trace a data-parallel job of one rank."""
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": PORT}
    dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda", 0))
    training = Training()
    training.model = DistributedDataParallel(training.model, device_ids=[0])
    gathered = [torch.empty(1 << 16, device="cuda")]

    def step() -> None:
        training.step()
        dist.all_gather(gathered, torch.ones(1 << 16, device="cuda"))
        dist.barrier()

    step()
    trace("cuda_nccl_rank0_of_1", step, steps=2, record_shapes=True)
    dist.destroy_process_group()


def main() -> None:
    """Capture all files into the working folder."""
    FIGURES.mkdir(exist_ok=True)
    device = torch.cuda.get_device_name()
    print("torch", torch.__version__, "python", sys.version.split()[0], device)  # noqa: T201 a script reports
    train_steps()
    stack_memory()
    graph_replays()
    nccl()


if __name__ == "__main__":
    main()

"""The plan of a generated trace: its shape, and its events in integer nanoseconds."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Literal

Era = Literal["us_int", "us_float", "us_decimal", "relative"]
Layout = Literal["kineto", "kineto_2026", "one_line", "indented"]
Document = Literal["object", "array"]
Event = dict[str, Any]  # a planned event: ts and dur in ns, ids as slots

BASE_NS = 1_735_689_600_000_000_000
START_NS = 4_458_676_416_431_397  # time of the first event after BASE_NS: weeks of uptime, as in real traces
PID = 2910
MAIN, AUTOGRAD = PID, 2931  # CPU threads
DECIMALS: Mapping[Era, int] = {"us_int": 0, "us_float": 1, "us_decimal": 3, "relative": 3}
UNIT_NS: Mapping[Era, int] = {"us_int": 1000, "us_float": 100, "us_decimal": 1, "relative": 1}
VARIANTS = 4  # steps planned; longer traces repeat them in turn
PAUSE_NS = 50_000  # between two steps

GEMMS = ("ampere_sgemm_128x64_tn", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn")
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float, 4>(TensorListMetadata<4>, int)",
)
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class TraceShape:
    """The shape of a generated trace. Equal shapes make equal bytes.

    Attributes:
        steps: number of `ProfilerStep#N`, from `first_step` on.
        kernels: events of category `kernel` in a step, collectives among them.
        streams: CUDA streams in use on each device; the last one carries the collectives.
        devices: GPUs in use; sixteen are always declared.
        rank: rank of this process; without it, or without `world_size`, there is no distributedInfo and no NCCL.
        world_size: processes in the job.
        era: the text of `ts`: epoch integer µs, epoch µs with 1 decimal, epoch µs with 3, or 3 decimals after
            `baseTimeNanoseconds`.
        layout: Kineto's own text until 2025, its text since 2026, json.dump's, or json.dump's with an indent.
        base_position: position of `baseTimeNanoseconds` in a "relative" object; other eras have none.
        document: an object with an envelope, or the bare list of events.
        stacks: whether there are `python_function` events.
        stream_name: the name of a stream's thread. Kineto ends it with a space.
        first_step: number of the first step.
        seed: seed of names, durations and gaps.
    """

    steps: int = 3
    kernels: int = 24
    streams: tuple[int, ...] = (7, 20)
    devices: tuple[int, ...] = (0,)
    rank: int | None = 0
    world_size: int | None = 8
    era: Era = "relative"
    layout: Layout = "kineto"
    base_position: Literal["before", "after"] | None = "before"
    document: Document = "object"
    stacks: bool = False
    stream_name: str = "stream {} "
    first_step: int = 3
    seed: int = 0

    @property
    def distributed(self) -> bool:
        """Whether the trace records that its process belongs to a distributed job."""
        return self.rank is not None and self.world_size is not None

    @property
    def base_ns(self) -> int | None:
        """The document's `baseTimeNanoseconds`; None if it has none."""
        has_base = self.era == "relative" and self.document == "object" and self.base_position is not None
        return BASE_NS if has_base else None

    @property
    def start_ns(self) -> int:
        """The first event's time in the trace's own clock, in units that the era can write."""
        unit = UNIT_NS[self.era]
        return (START_NS + (0 if self.era == "relative" else BASE_NS)) // unit * unit


SLOTS = ("us", "step", "external", "correlation", "link", "index", "python", "sequence")


def slot(kind: str, offset: int) -> str:
    """Return the placeholder of a number that changes with the step: the step's base of its kind plus `offset`."""
    return f"@@{kind}:{offset}@@"


class Step:
    """One planned step: its events, with ts in ns after the step's start, and the number of ids that it uses."""

    def __init__(self, shape: TraceShape, variant: int) -> None:
        self.shape = shape
        self.random = Random(f"{shape.seed}/{variant}")
        self.unit = UNIT_NS[shape.era]
        self.events: list[Event] = []
        self.ids: Counter[str] = Counter()
        self.stack: list[str] = []  # Python ids of the open frames
        self.now = 0
        self.free = dict.fromkeys(itertools.product(shape.devices, shape.streams), 0)
        self._run()

    def _run(self) -> None:
        collectives = max(1, self.shape.kernels // 16) if self.shape.distributed and self.shape.kernels else 0
        computes = self.shape.kernels - collectives
        forwards = (computes + 1) // 2
        step = self._add("X", "user_annotation", "ProfilerStep#@step:0@", dur=0, args={})
        step["args"] = {"External id": self._next("external"), "Record function id": 0}
        self.now += self._draw(1, 4)
        with self._frame("train.py(42): train_step"):
            self._overhead()
            self._copy()
            links = [self._forward(place) for place in range(forwards)]
            for place, link in zip(range(forwards, computes), reversed(links), strict=False):
                self._backward(place, link)
            for _ in range(collectives):
                self._all_reduce()
            self._clear()
            self._synchronize()
        self._twins(step)
        self.dur = step["dur"] = self.now
        self.now += PAUSE_NS
        self.pitch = -(-self.now // 1000) * 1000  # whole µs, so that only the whole part of a ts changes

    def _draw(self, low_us: int, high_us: int) -> int:
        return self.random.randrange(low_us * 1000, high_us * 1000) // self.unit * self.unit

    def _next(self, kind: str) -> str:
        self.ids[kind] += 1
        return slot(kind, self.ids[kind])

    def _add(self, ph: str, cat: str, name: str, **fields: object) -> Event:
        """Add an event at `now` on the main thread, unless `fields` say otherwise."""
        event = {"ph": ph, "cat": cat, "name": name, "pid": PID, "tid": MAIN, "ts": self.now, **fields}
        self.events.append(event)
        return event

    @contextmanager
    def _slice(self, cat: str, name: str, **fields: object) -> Iterator[Event]:
        event = self._add("X", cat, name, **{"dur": 0, "args": {}, **fields})
        self.now += self._draw(1, 4)
        yield event
        self.now += self._draw(1, 4)
        event["dur"] = self.now - event["ts"]
        self.now += self._draw(1, 2)

    @contextmanager
    def _op(self, name: str, tid: int, **args: object) -> Iterator[Event]:
        head = {"External id": self._next("external"), "Record function id": 0}
        args = {**head, **args, "Ev Idx": self._next("index")}
        with self._slice("cpu_op", name, tid=tid, args=args) as event:
            yield event

    @contextmanager
    def _frame(self, name: str, **ids: object) -> Iterator[None]:
        if not self.shape.stacks:
            yield
            return
        parent = self.stack[-1] if self.stack else None
        args = {"Python parent id": parent, "Python id": self._next("python"), **ids}
        with self._slice("python_function", name, args={**args, "Ev Idx": self._next("index")}):
            self.stack.append(str(args["Python id"]))
            yield
            self.stack.pop()

    def _forward(self, place: int) -> Event:
        inputs = {
            "Concrete Inputs": ["", "", "", "1", "1"],
            "Input type": ["float", "float", "float", "Scalar", "Scalar"],
            "Input Strides": [[1], [1024, 1], [1, 1024], [], []],
            "Input Dims": [[4096], [64, 1024], [1024, 4096], [], []],
        }
        sequence: Event = {"Sequence number": self._next("sequence"), "Fwd thread id": 0}
        with (
            self._frame(f"nn.Module: Linear_{place}", **{"Python module id": place}),
            self._frame("torch/nn/modules/linear.py(124): forward"),
            self._op("aten::linear", MAIN),
            self._op("aten::addmm", MAIN, **sequence, **inputs) as op,
        ):
            link = {"id": self._next("link"), "pid": PID, "tid": MAIN, "ts": op["ts"]}
            self.events.append({"ph": "s", **link, "cat": "fwdbwd", "name": "fwdbwd"})
            self._memory(1 << 20)
            self._kernel(op, self.random.choice(GEMMS), place)
        return link | {"args": op["args"]}

    def _backward(self, place: int, forward: Event) -> None:
        sequence = {"Sequence number": forward["args"]["Sequence number"], "Fwd thread id": 1}
        engine = "autograd::engine::evaluate_function: AddmmBackward0"
        with self._op(engine, AUTOGRAD, **sequence), self._op("AddmmBackward0", AUTOGRAD, **sequence) as op:
            link = {"id": forward["id"], "pid": PID, "tid": AUTOGRAD, "ts": op["ts"]}
            self.events.append({"ph": "f", **link, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"})
            with self._op("aten::mm", AUTOGRAD) as inner:
                self._kernel(inner, self.random.choice(GEMMS + ELEMENTWISE), place)
            self._memory(-(1 << 20))

    def _all_reduce(self) -> None:
        world = self.shape.world_size or 1
        collective = {
            "Collective name": "allreduce",
            "In msg nelems": 2049000,
            "Out msg nelems": 2049000,
            "Group size": world,
            "dtype": "Float",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(world))),
        }
        rank = {"Rank": self.shape.rank, "Global rank start": 0, "Global rank stride": 1}
        with self._op("record_param_comms", AUTOGRAD, **collective, **rank) as op:
            external = {"External id": self._next("external"), "Record function id": 0}
            with self._slice("user_annotation", "nccl:all_reduce", tid=AUTOGRAD, args=external):
                self._kernel(op, NCCL, len(self.shape.streams) - 1, "cudaLaunchKernelExC", **collective)

    def _kernel(self, op: Event, name: str, place: int, call: str = "cudaLaunchKernel", **collective: object) -> None:
        grid, block = self.random.choice((8, 64, 512, 4096)), self.random.choice((128, 256, 512))
        details = {
            "registers per thread": self.random.randrange(16, 128),
            "shared memory": self.random.choice((0, 400, 49152)),
            "blocks per SM": round(grid / 108, 6),
            "warps per SM": round(grid * block / 32 / 108, 6),
            "grid": [grid, 1, 1],
            "block": [block, 1, 1],
            "est. achieved occupancy %": self.random.randrange(101),
        }
        self._launch(op, call, "kernel", name, place, self._draw(4, 60), {**details, **collective})

    def _copy(self) -> None:
        with self._op("aten::copy_", MAIN) as op:
            self._transfer(op, "cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 19267584)

    def _clear(self) -> None:
        with self._op("aten::zero_", MAIN) as op:
            self._transfer(op, "cudaMemsetAsync", "gpu_memset", "Memset (Device)", 6291456)

    def _transfer(self, op: Event, call: str, cat: str, name: str, size: int) -> None:
        dur = self._draw(4, 900)
        self._launch(op, call, cat, name, 0, dur, {"bytes": size, "memory bandwidth (GB/s)": size / dur})

    def _launch(
        self, op: Event, call: str, cat: str, name: str, place: int, dur: int, details: Mapping[str, object]
    ) -> None:
        """Add a runtime call on the op's thread, its work on a stream of a device, and the flow between them."""
        external, tid = {"External id": op["args"]["External id"]}, op["tid"]
        correlation = {"correlation": self._next("correlation")}
        flow = {"id": correlation["correlation"], "pid": PID, "tid": tid, "ts": self.now}
        args = {**external, "cbid": CBIDS[call], **correlation}
        with self._slice("cuda_runtime", call, tid=tid, args=args):
            pass
        self.events.append({"ph": "s", **flow, "cat": "ac2g", "name": "ac2g"})

        device = self.shape.devices[place // len(self.shape.streams) % len(self.shape.devices)]
        stream = self.shape.streams[place % len(self.shape.streams)]
        start = max(self.now, self.free[device, stream]) + self._draw(2, 8)
        self.free[device, stream] = start + dur
        context = {"device": device, "context": 1, "stream": stream, **correlation}
        queued = {"queued": 0} if cat == "kernel" else {}
        on = {"pid": device, "tid": stream, "ts": start}
        self._add("X", cat, name, **on, dur=dur, args={**external, **queued, **context, **details})
        self.events.append({"ph": "f", "id": flow["id"], **on, "cat": "ac2g", "name": "ac2g", "bp": "e"})

    def _memory(self, size: int) -> None:
        totals = {"Total Reserved": 1 << 31, "Total Allocated": (1 << 30) + size, "Bytes": size}
        context = {"Device Id": self.shape.devices[0], "Device Type": 1, "Addr": 140_201_000_000_000}
        args = {**totals, **context, "Ev Idx": self._next("index")}
        self._add("i", "cpu_instant_event", "[memory]", s="t", args=args)

    def _overhead(self) -> None:
        self._add("X", "overhead", "Activity Buffer Request", pid=-1, tid=0, dur=self._draw(2, 20))

    def _synchronize(self) -> None:
        correlation = self._next("correlation")
        args = {"cbid": CBIDS["cudaDeviceSynchronize"], "correlation": correlation}
        with self._slice("cuda_runtime", "cudaDeviceSynchronize", args=args):
            self.now = max(self.now, *self.free.values()) + self._draw(2, 4)

    def _twins(self, step: Event) -> None:
        """Add the step's annotation on the first stream of each device, around that stream's work."""
        for device in self.shape.devices:
            on = {"pid": device, "tid": self.shape.streams[0]}
            work = [event for event in self.events if event.get("dur") and on.items() <= event.items()]
            if work:
                start, end = work[0]["ts"] - 1000, work[-1]["ts"] + work[-1]["dur"] + 1000
                span = {**on, "ts": start, "dur": end - start}
                args = {"External id": step["args"]["External id"]}
                self._add("X", "gpu_user_annotation", step["name"], **span, args=args)


CBIDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaDeviceSynchronize": 165,
}


class Plan:
    """A whole trace: its opening events, the planned steps and their starts, and its closing events."""

    def __init__(self, shape: TraceShape) -> None:
        self.shape = shape
        self.variants = [Step(shape, variant) for variant in range(VARIANTS)]
        names, spans = self._names(), self._spans()
        names_first = shape.layout == "kineto_2026"
        self.opening = [*(names if names_first else ()), *spans[:1]]
        self.closing = [*(() if names_first else names), *spans[1:]]

    @cached_property
    def starts(self) -> list[int]:
        """The start of each step, in ns of the trace's own clock."""
        return self._marks[:-1]

    @cached_property
    def _marks(self) -> list[int]:
        """The starts, and the end of the last step."""
        pitches = (step.pitch for step in itertools.cycle(self.variants))
        # whole µs: the offsets inside a step carry the fractions
        first = -(-self.shape.start_ns // 1000) * 1000 + 100_000
        return list(itertools.accumulate(itertools.islice(pitches, self.shape.steps), initial=first))

    def _names(self) -> list[Event]:
        at = self.shape.start_ns + 50_000
        on = {PID: ("CPU", PID)} | {device: (f"GPU {device}", 16777216 + device) for device in range(16)}
        metadata = {"ph": "M", "ts": at}
        events = []
        for pid, (label, order) in on.items():
            process = {**metadata, "pid": pid, "tid": 0}
            events += [
                {**process, "name": "process_name", "args": {"name": "python"}},
                {**process, "name": "process_labels", "args": {"labels": label}},
                {**process, "name": "process_sort_index", "args": {"sort_index": order}},
            ]
        threads: dict[tuple[int, int], str] = {
            (device, stream): self.shape.stream_name.format(stream)
            for device, stream in itertools.product(self.shape.devices, self.shape.streams)
        }
        threads |= {
            (PID, MAIN): f"thread {MAIN} (python)",
            (PID, AUTOGRAD): f"thread {AUTOGRAD} (pt_autograd_0)",
        }
        for (pid, tid), name in threads.items():
            thread = {**metadata, "pid": pid, "tid": tid}
            events += [
                {**thread, "name": "thread_name", "args": {"name": name}},
                {**thread, "name": "thread_sort_index", "args": {"sort_index": tid}},
            ]
        return events

    def _spans(self) -> list[Event]:
        start, end = self.shape.start_ns, self._marks[-1]
        span = {"pid": "Spans", "tid": "PyTorch Profiler", "ts": start}
        dur = (end - start) // 1000 * 1000
        mark = {"ph": "i", "s": "g"}
        traces = {"pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": start}
        buffers = {"ph": "X", "cat": "overhead", "name": "Instrumentation", "pid": -1, "tid": 0}
        traced = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)"}
        order = {"sort_index": 536870912}
        return [
            {**buffers, "ts": start, "dur": 2000},
            {**traced, **span, "dur": dur, "args": {"Op count": 0}},
            {"ph": "M", "name": "process_sort_index", **span, "tid": 0, "args": order},
            {**mark, "name": "Iteration Start: PyTorch Profiler", **traces},
            {**mark, "name": "Record Window End", "pid": "", "tid": "", "ts": end + 20_000_000},
        ]


@lru_cache(maxsize=4)
def plan_of(shape: TraceShape) -> Plan:
    return Plan(shape)

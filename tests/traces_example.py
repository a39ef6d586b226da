"""The example of the documents: a small language model in data-parallel training, traced on two ranks for three steps.

Both ranks are simulated together. A host thread runs ahead of its GPU until it reads the loss. Work starts after its
launch, after the work before it on its stream, and after the events that its stream waits for. A collective ends on
both ranks at once, so a late rank delays the other. In step 11 rank 1 waits for its data loader. Times are ns.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tests.traces_plan import BASE_NS, CBIDS, SLOTS, START_NS, Event, TraceShape
from tests.traces_text import FRAMES, sections

RANKS = 2
STEPS = (10, 11, 12)
BLOCKS = 3
STALL = (1, 11)  # rank and step of the data loader's stall
STALL_NS = 21_000_000
COMPUTE, REDUCE = 7, 20  # streams
SYNC = 1_000_000  # Kineto numbers the tracks of waiting streams from here
TOKENS, HIDDEN, VOCABULARY = 8192, 2048, 32000
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
CALLS = {
    **CBIDS,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cuLaunchKernelEx": 652,
}
LAYOUT = TraceShape(layout="kineto_2026")

Simulation = Generator[int, int, None]
"""A rank's run: yields the start of each collective on this rank, receives its end."""


class Block(NamedTuple):
    """A block of the GPU's memory."""

    address: int
    size: int


class Saved(NamedTuple):
    """The values of a layer's forward pass that its backward pass needs."""

    sequence: int
    link: int
    block: Block


@dataclass(frozen=True)
class Kernel:
    """A kernel as its launch configures it."""

    name: str
    us: int
    grid: tuple[int, int, int]
    block: int = 128
    registers: int = 40
    shared: int = 0
    occupancy: int = 60
    call: str = "cudaLaunchKernel"


@dataclass(frozen=True)
class Layer:
    """One node of the autograd graph.

    Attributes:
        module: class of the `nn.Module` that runs it, None for a bare function.
        ops: the operators of its forward pass, outermost first.
        kernel: kernel that the innermost operator launches.
        dims: shapes of the inputs.
        saved: bytes that it keeps for the backward pass.
        node: name of its node in the backward pass.
        backward: kernels of that pass, each with the operator that launches it.
        weight: bytes of the gradient of its weight.
        bucket: bytes of the gradients that are reduced after its backward pass.
        within: modules around it.
    """

    module: str | None
    ops: tuple[str, ...]
    kernel: Kernel
    dims: tuple[tuple[int, ...], ...]
    saved: int
    node: str
    backward: tuple[tuple[str, Kernel], ...]
    weight: int = 0
    bucket: int = 0
    within: tuple[str, ...] = ()


def elementwise(functor: str, us: int) -> Kernel:
    name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, 3ul>>"
    return Kernel(f"{name}(int, at::native::{functor}, std::array<char*, 3ul>)", us, (16384, 1, 1), 128, 32, 0, 92)


def gemm(tile: str, us: int, columns: int) -> Kernel:
    grid = (2, max(1, columns // 128), 1)
    return Kernel(f"nvjet_tst_{tile}", us, grid, 384, 168, 213_232, 18, "cuLaunchKernelEx")


def linear(inputs: int, outputs: int, **fields: Any) -> Layer:
    us = max(20, round(2 * TOKENS * inputs * outputs / 480e6))
    return Layer(
        module="Linear",
        ops=("aten::linear", "aten::matmul", "aten::mm"),
        kernel=gemm("128x256_64x4_1x2_h_bz_coopA_TNT", us, outputs),
        dims=((TOKENS, inputs), (inputs, outputs)),
        saved=2 * TOKENS * outputs,
        node="MmBackward0",
        backward=(
            ("aten::mm", gemm("256x128_64x4_2x1_v_bz_coopA_NTT", us, inputs)),
            ("aten::mm", gemm("128x256_64x4_1x2_h_bz_coopB_NNT", us, inputs)),
        ),
        weight=2 * inputs * outputs,
        **fields,
    )


def layer_norm(**fields: Any) -> Layer:
    name = "void at::native::(anonymous namespace)::{}<c10::BFloat16, float>(int, float, c10::BFloat16 const*)"
    backward = Kernel(name.format("layer_norm_grad_input_kernel_vectorized"), 61, (TOKENS, 1, 1), 128, 48, 1056, 70)
    weights = Kernel(name.format("GammaBetaBackwardCUDAKernelTemplate"), 44, (64, 4, 1), 256, 40, 4224, 51)
    return Layer(
        module="LayerNorm",
        ops=("aten::layer_norm", "aten::native_layer_norm"),
        kernel=Kernel(name.format("vectorized_layer_norm_kernel"), 38, (TOKENS, 1, 1), 128, 32, 24, 88),
        dims=((8, 1024, HIDDEN), (HIDDEN,), (HIDDEN,)),
        saved=2 * TOKENS * HIDDEN,
        node="NativeLayerNormBackward0",
        backward=(("aten::native_layer_norm_backward", backward), ("aten::native_layer_norm_backward", weights)),
        weight=4 * HIDDEN,
        **fields,
    )


def attention(**fields: Any) -> Layer:
    traits = "<64, 128, 128, 4, false, false, cutlass::bfloat16_t>"
    forward = f"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits{traits}>(pytorch_flash::Flash_fwd_params)"
    backward = forward.replace("flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel").replace("fwd", "bwd")
    attend = "aten::_scaled_dot_product_flash_attention"
    return Layer(
        module=None,
        ops=("aten::scaled_dot_product_attention", attend, "aten::_flash_attention_forward"),
        kernel=Kernel(forward, 172, (8, 8, 32), 128, 255, 49_152, 25),
        dims=((8, 32, 1024, 64),) * 3,
        saved=2 * TOKENS * HIDDEN,
        node="ScaledDotProductFlashAttentionBackward0",
        backward=((f"{attend}_backward", Kernel(backward, 431, (8, 8, 32), 256, 255, 147_456, 12)),),
        **fields,
    )


def gelu(**fields: Any) -> Layer:
    shape = (8, 1024, 4 * HIDDEN)
    return Layer(
        module="GELU",
        ops=("aten::gelu",),
        kernel=elementwise("GeluCUDAKernelImpl", 88),
        dims=(shape,),
        saved=2 * TOKENS * 4 * HIDDEN,
        node="GeluBackward0",
        backward=(("aten::gelu_backward", elementwise("GeluBackwardCUDAKernelImpl", 131)),),
        **fields,
    )


def add(**fields: Any) -> Layer:
    return Layer(
        module=None,
        ops=("aten::add",),
        kernel=elementwise("CUDAFunctor_add<c10::BFloat16>", 57),
        dims=((8, 1024, HIDDEN),) * 2,
        saved=2 * TOKENS * HIDDEN,
        node="AddBackward0",
        backward=(),
        **fields,
    )


def embedding(**fields: Any) -> Layer:
    name = "void at::native::(anonymous namespace)::{}<c10::BFloat16, long, unsigned int>(int, int)"
    backward = Kernel(name.format("embedding_backward_feature_kernel"), 214, (HIDDEN // 32, 1, 1), 1024, 40, 16_384, 44)
    return Layer(
        module="Embedding",
        ops=("aten::embedding", "aten::index_select"),
        kernel=Kernel(name.format("indexSelectLargeIndex"), 41, (4560, 1, 1), 128, 32, 0, 75),
        dims=((VOCABULARY, HIDDEN), (8, 1024)),
        saved=2 * TOKENS * HIDDEN,
        node="EmbeddingBackward0",
        backward=(("aten::embedding_dense_backward", backward),),
        weight=2 * VOCABULARY * HIDDEN,
        **fields,
    )


def loss() -> Layer:
    name = "void at::native::(anonymous namespace)::cunn_SoftMax{}<8, c10::BFloat16, float, c10::BFloat16>(float*)"
    return Layer(
        module="CrossEntropyLoss",
        ops=("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"),
        kernel=Kernel(name.format("Forward"), 402, (TOKENS, 1, 1), 1024, 32, 128, 94),
        dims=((TOKENS, VOCABULARY), (TOKENS,)),
        saved=2 * TOKENS * VOCABULARY,
        node="LogSoftmaxBackward0",
        backward=(("aten::_log_softmax_backward_data", Kernel(name.format("Backward"), 611, (TOKENS, 1, 1), 1024)),),
    )


def model() -> list[Layer]:
    """The layers in the order of the forward pass."""
    layers = [embedding(bucket=2 * VOCABULARY * HIDDEN, within=("GPT_0",))]
    for number in range(BLOCKS):
        block = ("GPT_0", f"Block_{number}")
        attend, feed = (*block, f"CausalSelfAttention_{number}"), (*block, f"MLP_{number}")
        layers += [
            layer_norm(bucket=2 * 12 * HIDDEN * HIDDEN, within=block),
            linear(HIDDEN, 3 * HIDDEN, within=attend),
            attention(within=attend),
            linear(HIDDEN, HIDDEN, within=attend),
            add(within=block),
            layer_norm(within=block),
            linear(HIDDEN, 4 * HIDDEN, within=feed),
            gelu(within=feed),
            linear(4 * HIDDEN, HIDDEN, within=feed),
            add(within=block),
        ]
    head = linear(HIDDEN, VOCABULARY, bucket=2 * HIDDEN * VOCABULARY, within=("GPT_0",))
    return [*layers, layer_norm(within=("GPT_0",)), head, loss()]


@dataclass
class Rank:
    """One process of the run: its host threads, its GPU, and the events that the profiler sees."""

    rank: int
    events: list[Event] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    now: int = START_NS + 240_000  # time of the running thread; the other thread is idle
    sequence: int = 4210

    def __post_init__(self) -> None:
        self.random = Random(f"example/{self.rank}")
        self.pid = 41_210 + self.rank
        self.main, self.engine = self.pid, self.pid + 94
        self.thread = self.main
        self.ready = dict.fromkeys((COMPUTE, REDUCE), 0)  # when each stream has finished its work so far
        self.annotations: list[Event] = []  # the open annotations
        self.covered: dict[
            tuple[int, int], tuple[int, int]
        ] = {}  # per annotation and stream: start and end of its work
        self.frames: list[int] = []
        self.allocated, self.free = 6_912_000_000, 140_214_000_000_000
        self.gradients: list[Block] = []
        self.numbers: Counter[str] = Counter()
        self.external = 0  # External id of the innermost open operator, 0 for none

    def run(self) -> Simulation:
        """Train; yield the start of each collective on this rank, and receive its end."""
        with self._frame("train.py(71): <module>"):
            for step in STEPS:
                with self._annotation(f"ProfilerStep#{step}"):
                    yield from self._step(step)
                self.now += 31_000
        self._twins()

    def _step(self, step: int) -> Simulation:
        with self._frame("train.py(44): train_step"):
            batch = self._load(step)
            with self._annotation("Optimizer.zero_grad#AdamW.zero_grad"):
                while self.gradients:
                    self._release(self.gradients.pop())
            self._pass(6)
            layers = model()
            self.numbers.clear()
            with self._annotation("forward"):
                saved = self._forward(layers)
            with self._annotation("backward"), self._frame("torch/_tensor.py(570): backward"):
                self._pass(20)
                self.thread = self.engine
                yield from self._backward(layers, saved)
                self.thread = self.main
                self._pass(25)
            with self._annotation("Optimizer.step#AdamW.step"):
                self._optimize()
            self._release(batch)
            self._read_loss()

    def _load(self, step: int) -> Block:
        waiting = STALL_NS if (self.rank, step) == STALL else 310_000
        with self._annotation(LOADER), self._frame("torch/utils/data/dataloader.py(733): __next__"):
            self._pass(waiting // 1000)
        with self._op("aten::to"), self._op("aten::_to_copy"):
            with self._op("aten::empty_strided"):
                batch = self._allocate(8 * 8 * 1025)
            with self._op("aten::copy_"):
                self._copy("Memcpy HtoD (Pinned -> Device)", 8 * 8 * 1025, 6)
        return batch

    def _forward(self, layers: list[Layer]) -> list[Saved]:
        saved: list[Saved] = []
        path: tuple[str, ...] = ()
        with ExitStack() as root:
            modules: list[ExitStack] = []
            for layer in layers:
                shared = _shared(path, layer.within)
                while len(modules) > shared:
                    modules.pop().close()
                for name in layer.within[shared:]:
                    modules.append(root.enter_context(ExitStack()))
                    modules[-1].enter_context(self._module(name))
                path = layer.within
                saved.append(self._layer(layer))
            while modules:
                modules.pop().close()
        return saved

    def _layer(self, layer: Layer) -> Saved:
        if layer.module is None:
            return self._apply(layer)
        number = self.numbers[layer.module]
        self.numbers[layer.module] += 1
        with self._module(f"{layer.module}_{number}"):
            return self._apply(layer)

    def _apply(self, layer: Layer) -> Saved:
        """Run the operators of the forward pass; the innermost has the sequence number."""
        *outer, inner = layer.ops
        dims = [list(shape) for shape in layer.dims]
        with ExitStack() as ops:
            for name in outer:
                ops.enter_context(self._op(name))
            self.sequence += 1
            sequence = {"Sequence number": self.sequence, "Fwd thread id": 0}
            shapes = {"Input type": ["c10::BFloat16"] * len(dims), "Input Dims": dims}
            op = ops.enter_context(self._op(inner, **sequence, **shapes))
            block = self._allocate(layer.saved)
            self.ids["link"] += 1
            saved = Saved(self.sequence, self.ids["link"], block)
            self._flow("s", "fwdbwd", saved.link, op["ts"])
            self._kernel(layer.kernel)
        self._pass(3)
        return saved

    def _backward(self, layers: list[Layer], saved: list[Saved]) -> Simulation:
        incoming: Block | None = None
        for layer, (number, link, block) in zip(reversed(layers), reversed(saved), strict=True):
            sequence = {"Sequence number": number, "Fwd thread id": 1}
            with self._op(f"autograd::engine::evaluate_function: {layer.node}", **sequence) as node:
                self._flow("f", "fwdbwd", link, node["ts"])
                with self._op(layer.node, **sequence):
                    if layer.weight:
                        self.gradients.append(self._allocate(layer.weight))
                    outgoing = self._allocate(2 * TOKENS * HIDDEN)
                    for name, kernel in layer.backward:
                        with self._op(name):
                            self._kernel(kernel)
                    self._release(block)
                    if incoming:
                        self._release(incoming)
                    incoming = outgoing
            if layer.weight:
                with self._op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    self._pass(2)
                    if layer.bucket:
                        yield from self._all_reduce(layer.bucket)
            self._pass(2)
        if incoming:
            self._release(incoming)
        self._hand_over(REDUCE, COMPUTE)

    def _all_reduce(self, size: int) -> Simulation:
        self.ids["collective"] += 1
        ranks = list(range(RANKS))
        collective = {
            "Collective name": "allreduce",
            "In msg nelems": size // 2,
            "Out msg nelems": size // 2,
            "Group size": RANKS,
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(ranks),
            "Seq": 54 + self.ids["collective"],
        }
        kernel = Kernel(NCCL, 0, (24, 1, 1), 512, 96, 84_144, 2, "cudaLaunchKernelExC")
        with self._op("c10d::allreduce_"):
            self._hand_over(COMPUTE, REDUCE)
            comms = {**collective, "Rank": self.rank, "Global rank start": 0, "Global rank stride": 1}
            with self._op("record_param_comms", **comms), self._annotation("nccl:all_reduce"):
                launch = self._call(kernel.call)
                start = max(self.now + 2400, self.ready[REDUCE] + 1100)
                end = yield start
                self._work(launch, "kernel", NCCL, REDUCE, start, end - start, configured(kernel) | collective)

    def _optimize(self) -> None:
        functor = "at::native::FusedAdamMathFunctor<c10::BFloat16, 4, (at::native::ADAM_MODE)1>"
        name = f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{functor}>(float)"
        with self._op("aten::_fused_adamw_"):
            for us in (640, 655, 402):
                self._kernel(Kernel(name, us, (2640, 1, 1), 512, 56, 0, 62))
                self._pass(2)

    def _read_loss(self) -> None:
        with self._op("aten::item"), self._op("aten::_local_scalar_dense"):
            self._copy("Memcpy DtoH (Device -> Pinned)", 4, 2)
            with self._slice(
                "cuda_runtime", "cudaStreamSynchronize", **self._correlated("cudaStreamSynchronize")
            ) as call:
                self.now = max(self.now, self.ready[COMPUTE] + 3000)
            self._synchronized("Stream Sync", COMPUTE, call, self.now - call["ts"], {})

    # -- events of the profiler -------------------------------------------------------------------------------

    def _pass(self, us: int) -> None:
        """Let about `us` µs pass on the running thread."""
        self.now += us * 1000 + self.random.randrange(us * 120 + 200)

    @contextmanager
    def _slice(self, cat: str, name: str, **args: Any) -> Iterator[Event]:
        event: Event = {"ph": "X", "cat": cat, "name": name, "pid": self.pid, "tid": self.thread, "ts": self.now}
        event |= {"dur": 0, "args": args}
        self.events.append(event)
        self._pass(1)
        yield event
        self._pass(1)
        event["dur"] = self.now - event["ts"]
        self.now += 200

    @contextmanager
    def _op(self, name: str, **args: Any) -> Iterator[Event]:
        self.ids["external"] += 1
        head = {"External id": self.ids["external"], "Record function id": 0}
        with self._slice("cpu_op", name, **head, **args) as event:
            outer, self.external = self.external, event["args"]["External id"]
            yield event
            self.external = outer

    @contextmanager
    def _annotation(self, name: str) -> Iterator[Event]:
        self.ids["external"] += 1
        with self._slice("user_annotation", name, **{"External id": self.ids["external"]}) as event:
            self.annotations.append(event)
            yield event
            self.annotations.pop()

    @contextmanager
    def _frame(self, name: str, **args: Any) -> Iterator[None]:
        self.ids["python"] += 1
        parent = self.frames[-1] if self.frames else None
        ids = {"Python parent id": parent, "Python id": self.ids["python"]}
        with self._slice("python_function", name, **ids, **args):
            self.frames.append(ids["Python id"] or 0)
            yield
            self.frames.pop()

    @contextmanager
    def _module(self, name: str) -> Iterator[None]:
        with self._frame(f"nn.Module: {name}", **{"Python module id": int(name.rpartition("_")[2])}):
            yield

    def _correlated(self, call: str) -> dict[str, Any]:
        self.ids["correlation"] += 1
        head = {"External id": self.external} if self.external else {}
        return {**head, "cbid": CALLS[call], "correlation": self.ids["correlation"]}

    def _call(self, name: str) -> Event:
        """Add a call that launches work, and the start of the arrow to that work."""
        cat = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        with self._slice(cat, name, **self._correlated(name)) as call:
            self._pass(3)
        self._flow("s", "ac2g", call["args"]["correlation"], call["ts"])
        return call

    def _flow(self, ph: str, cat: str, number: int, at: int) -> None:
        flow = {"ph": ph, "id": number, "pid": self.pid, "tid": self.thread, "ts": at, "cat": cat, "name": cat}
        self.events.append(flow | ({"bp": "e"} if ph == "f" else {}))

    def _kernel(self, kernel: Kernel) -> None:
        launch = self._call(kernel.call)
        dur = kernel.us * 1000 + self.random.randrange(kernel.us * 15)
        start = max(self.now + 2100, self.ready[COMPUTE] + 900)
        self._work(launch, "kernel", kernel.name, COMPUTE, start, dur, configured(kernel))

    def _copy(self, name: str, size: int, us: int) -> None:
        launch = self._call("cudaMemcpyAsync")
        start, dur = max(self.now + 2100, self.ready[COMPUTE] + 900), us * 1000 + self.random.randrange(400)
        bandwidth = {"bytes": size, "memory bandwidth (GB/s)": size / dur}
        self._work(launch, "gpu_memcpy", name, COMPUTE, start, dur, bandwidth)

    def _work(
        self, launch: Event, cat: str, name: str, stream: int, start: int, dur: int, details: Mapping[str, Any]
    ) -> None:
        self.ready[stream] = start + dur
        ids = {key: launch["args"][key] for key in ("External id", "correlation") if key in launch["args"]}
        context = {"device": self.rank, "context": 1, "stream": stream}
        place = {"pid": self.rank, "tid": stream, "ts": start}
        args = ids | ({"queued": 0} if cat == "kernel" else {}) | context | dict(details)
        self.events.append({"ph": "X", "cat": cat, "name": name, **place, "dur": dur, "args": args})
        flow = {"ph": "f", "id": launch["args"]["correlation"], **place, "cat": "ac2g", "name": "ac2g", "bp": "e"}
        self.events.append(flow)
        for annotation in self.annotations:
            key = (annotation["args"]["External id"], stream)
            first, _ = self.covered.get(key, (start, 0))
            self.covered[key] = (first, start + dur)

    def _hand_over(self, source: int, target: int) -> None:
        """Make stream `target` wait for all work launched on stream `source` so far."""
        with self._slice("cuda_runtime", "cudaEventRecord", **self._correlated("cudaEventRecord")) as record:
            pass
        with self._slice("cuda_runtime", "cudaStreamWaitEvent", **self._correlated("cudaStreamWaitEvent")) as wait:
            pass
        number = record["args"]["correlation"]
        event = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": number, "wait_on_cuda_event_id": number}
        self._synchronized("Stream Wait Event", target, wait, 1000, event)
        self.ready[target] = max(self.ready[target], self.ready[source])

    def _synchronized(self, name: str, stream: int, call: Event, dur: int, args: Mapping[str, Any]) -> None:
        """Add the event that `enable_cuda_sync_events` writes for a call that waits or makes a stream wait."""
        context = {"device": self.rank, "context": 1, "stream": stream, "correlation": call["args"]["correlation"]}
        event = {"ph": "X", "cat": "cuda_sync", "name": name, "pid": self.rank, "ts": call["ts"]}
        self.events.append({**event, "tid": SYNC + stream, "dur": dur, "args": context | dict(args)})

    def _allocate(self, size: int) -> Block:
        size = -(-size // 512) * 512
        self.free += size
        block = Block(self.free - size, size)
        self._memory(block, size)
        return block

    def _release(self, block: Block) -> None:
        self._memory(block, -block.size)

    def _memory(self, block: Block, size: int) -> None:
        self.allocated += size
        totals = {"Total Reserved": 11_811_160_064, "Total Allocated": self.allocated, "Bytes": size}
        context = {"Addr": block.address, "Device Id": self.rank, "Device Type": 1}
        place = {"pid": self.pid, "tid": self.thread, "ts": self.now}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **place}
        self.events.append(event | {"args": totals | context})
        self.now += 300

    def _twins(self) -> None:
        """Add the GPU's copies of the annotations; each spans the work that was launched inside its annotation."""
        annotations = [event for event in self.events if event.get("cat") == "user_annotation"]
        names = {event["args"]["External id"]: event["name"] for event in annotations}
        for (number, stream), (start, end) in self.covered.items():
            place = {"pid": self.rank, "tid": stream, "ts": start - 400, "dur": end - start + 800}
            twin = {"ph": "X", "cat": "gpu_user_annotation", "name": names[number], **place}
            self.events.append(twin | {"args": {"External id": number}})


def configured(kernel: Kernel) -> dict[str, Any]:
    """The args of a kernel's configuration, as Kineto computes them for 114 multiprocessors."""
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    return {
        "registers per thread": kernel.registers,
        "shared memory": kernel.shared,
        "blocks per SM": round(blocks / 114, 6),
        "warps per SM": round(blocks * kernel.block / 32 / 114, 6),
        "grid": list(kernel.grid),
        "block": [kernel.block, 1, 1],
        "est. achieved occupancy %": kernel.occupancy,
    }


def simulated() -> list[Rank]:
    """Run all ranks: each collective ends once the last rank has joined and its bytes are sent."""
    ranks = [Rank(number) for number in range(RANKS)]
    runs = [rank.run() for rank in ranks]
    sizes = [layer.bucket for layer in reversed(model()) if layer.bucket]
    starts = [next(run) for run in runs]
    for number in range(len(STEPS) * len(sizes)):
        end = max(starts) + sizes[number % len(sizes)] * 1000 // 46_000  # 46 GB/s
        starts = [start for run in runs if (start := _next_start(run, end)) is not None]
    return ranks


def _shared(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Return the length of the longest common prefix."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _next_start(run: Simulation, end: int) -> int | None:
    try:
        return run.send(end)
    except StopIteration:
        return None


def example_text(rank: Rank) -> bytes:
    """Return the document of a rank as Kineto writes it."""
    frame = FRAMES[LAYOUT.layout]
    still = dict.fromkeys(SLOTS, 0)
    host = [event for event in rank.events if not _on_device(event)]
    device = [event for event in rank.events if _on_device(event)]
    events = [*_names(rank), *host, *device, *_spans(rank)]
    for number, event in enumerate(event for event in events if event.get("cat") in {"cpu_op", "user_annotation"}):
        event["args"]["Ev Idx"] = number
    text = b"".join(section.fill(still) for section in sections(events, LAYOUT))
    entries = [_entry(key, value) for key, value in _header(rank).items()]
    before = frame.open + frame.joint.join([*entries, '"traceEvents": ' + frame.events_open])
    after = frame.joint.join([frame.events_close, _entry("traceName", "/tmp/trace.json")]) + frame.close
    return before.encode() + text.removeprefix(frame.event_joint.encode()) + after.encode()


def _on_device(event: Event) -> bool:
    return bool(event["pid"] < RANKS)


def _names(rank: Rank) -> list[Event]:
    events: list[Event] = []
    metadata = {"ph": "M", "ts": START_NS}
    for pid, label, order in [(rank.pid, "CPU", rank.pid), (rank.rank, f"GPU {rank.rank}", 5_000_000 + rank.rank)]:
        process = {"pid": pid, "tid": 0}
        for name, args in (
            ("process_name", {"name": "python"}),
            ("process_labels", {"labels": label}),
            ("process_sort_index", {"sort_index": order}),
        ):
            events.append({**metadata, "name": name, **process, "args": args})
    threads = {
        (rank.pid, rank.main): f"thread {rank.main} (python)",
        (rank.pid, rank.engine): f"thread {rank.engine} (pt_autograd_0)",
        (rank.rank, COMPUTE): f"stream {COMPUTE} ",
        (rank.rank, REDUCE): f"stream {REDUCE} ",
    }
    for (pid, tid), name in threads.items():
        events.append({**metadata, "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
        events.append({**metadata, "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}})
    return events


def _spans(rank: Rank) -> list[Event]:
    end = rank.now + 55_000
    span = {"pid": "Spans", "tid": "PyTorch Profiler", "ts": START_NS, "dur": end - START_NS}
    window = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": end}
    start = {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces"}
    return [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", **span, "args": {"Op count": 0}},
        {**start, "tid": "Trace PyTorch Profiler", "ts": START_NS},
        window,
    ]


def _header(rank: Rank) -> dict[str, Any]:
    gpu = {"name": "NVIDIA H100 PCIe", "totalGlobalMem": 85_017_755_648, "computeMajor": 9, "computeMinor": 0}
    limits = {"maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32}
    sizes = {"sharedMemPerBlock": 49152, "numSms": 114}
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": RANKS}
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": device, **gpu, **limits, **sizes} for device in range(RANKS)],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank.rank,
            "world_size": RANKS,
            "pg_count": 1,
            "pg_config": [{**group, "ranks": list(range(RANKS))}],
            "nccl_version": "2.21.5",
        },
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
        "record_shapes": 1,
        "profile_memory": 1,
        "with_stack": 1,
        "trace_id": f"{rank.random.getrandbits(128):032X}",
        "host_name": "node-0",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }


def _entry(key: str, value: object) -> str:
    indent = 2 if isinstance(value, list) else None
    return f"{json.dumps(key)}: {textwrap.indent(json.dumps(value, indent=indent), '  ').lstrip()}"

"""Simulation of training steps on the main thread, the autograd thread, two computing streams and a reducing stream.

Each start and end follows from its dependencies. A call starts when its thread is free. Work starts after its launch,
after earlier work on its stream, and after the events for which the stream waits. A synchronizing call ends after the
work for which it waits. Times are whole µs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

MAIN, ENGINE = 100, 101
FIRST, SECOND, REDUCING = 7, 20, 24
"""Streams: the forward pass computes on the first two, backward and optimizer on the first; the third reduces."""


@dataclass
class Training:
    """Builder of training steps.

    Args:
        call_us: duration of a launching call.
        host_us: duration of an operator without its launch.
        kernel_us: duration of a kernel; every third kernel takes twice as long.
        layers: number of layers of the model.
        steps: number of steps.
    """

    call_us: int = 6
    host_us: int = 12
    kernel_us: int = 40
    layers: int = 40
    steps: int = 2
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._now = 1000  # the time of the running thread; the other thread is idle
        self._over = dict.fromkeys((FIRST, SECOND, REDUCING), 0)  # the end of the last work of each stream
        self._waits = dict.fromkeys((FIRST, SECOND, REDUCING), 0)  # the time until which each stream must wait
        self._correlation = self._sequence = self._kernels = 0
        for number in range(self.steps):
            with self._slice(f"ProfilerStep#{number}", MAIN, "user_annotation"):
                self._step()
            self._now += 20

    def _step(self) -> None:
        first = self._sequence
        for layer in range(self.layers):
            self._sequence += 1
            self._now += 2
            with self._op("aten::linear", MAIN, self._sequence) as forward:
                self._kernel(MAIN, (FIRST, SECOND)[layer % 5 == 4], "gemm")
                self._flow("s", forward)
            if layer % 5 == 4:
                self._hand_over(MAIN, SECOND, FIRST)
            elif layer % 5 == 3:
                self._hand_over(MAIN, FIRST, SECOND)
        self._now += 30
        with self._slice("## backward ##", MAIN, "user_annotation"):
            self._now += 15
            for layer in range(self.layers):
                self._backward(layer, first + self.layers - layer)
            self._now += 25
        for _ in range(4):
            self._now += 3
            with self._op("aten::_foreach_add_", MAIN, 0):
                self._kernel(MAIN, FIRST, "multi_tensor_apply")
        self._synchronize()

    def _backward(self, layer: int, sequence: int) -> None:
        self._now += 2
        with self._op("autograd::engine::evaluate_function: AddmmBackward0", ENGINE, sequence) as backward:
            self._flow("f", backward, sequence)
            with self._op("AddmmBackward0", ENGINE, sequence):
                self._kernel(ENGINE, FIRST, "gemm_backward")
                self._kernel(ENGINE, FIRST, "gemm_backward")
            if layer % 10 == 9:
                self._hand_over(ENGINE, FIRST, REDUCING)
                self._kernel(ENGINE, REDUCING, "ncclDevKernel_AllReduce")
                if layer == self.layers - 1:
                    self._hand_over(ENGINE, REDUCING, FIRST)

    @contextmanager
    def _slice(self, name: str, tid: int, cat: str, **args: Any) -> Iterator[Event]:
        event: Event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": self._now, "args": args}
        self.events.append(event)
        yield event
        event["dur"] = self._now - event["ts"]

    @contextmanager
    def _op(self, name: str, tid: int, sequence: int) -> Iterator[Event]:
        args = {"Sequence number": sequence, "Fwd thread id": int(tid == ENGINE)} if sequence else {}
        with self._slice(name, tid, "cpu_op", **args) as event:
            self._now += self.host_us // 2
            yield event
            self._now += self.host_us - self.host_us // 2

    @contextmanager
    def _call(self, name: str, tid: int, **args: Any) -> Iterator[int]:
        self._correlation += 1
        with self._slice(name, tid, "cuda_runtime", correlation=self._correlation, **args):
            yield self._correlation

    def _flow(self, ph: str, op: Event, number: int = 0) -> None:
        flow = {"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": number or self._sequence, "pid": 1}
        self.events.append({**flow, "tid": op["tid"], "ts": op["ts"], **({"bp": "e"} if ph == "f" else {})})

    def _kernel(self, tid: int, stream: int, name: str) -> None:
        with self._call("cudaLaunchKernel", tid) as correlation:
            self._now += self.call_us
        self._kernels += 1
        start = max(self._now + 3, self._over[stream] + 1, self._waits[stream] + 2)
        lasting = self.kernel_us * (2 if self._kernels % 3 == 0 else 1)
        self._over[stream] = start + lasting
        self._device(name, "kernel", stream, start, lasting, correlation=correlation)

    def _device(self, name: str, cat: str, stream: int, start: int, lasting: int, **args: Any) -> None:
        answer = {"device": 0, "context": 1, "stream": stream, **args}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": lasting, "args": answer}
        )

    def _hand_over(self, tid: int, source: int, target: int) -> None:
        """Make the stream `target` wait for all work that was launched on the stream `source` so far."""
        with self._call("cudaEventRecord", tid) as record:
            self._now += 1
        with self._call("cudaStreamWaitEvent", tid) as wait:
            start = self._now
            self._now += 1
        self._waits[target] = max(self._waits[target], self._over[source])
        event = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": record, "wait_on_cuda_event_id": record}
        self._device("Stream Wait Event", "cuda_sync", target, start, 1, correlation=wait, **event)

    def _synchronize(self) -> None:
        self._now += 2
        with self._call("cudaDeviceSynchronize", MAIN) as correlation:
            start = self._now
            self._now = max(self._now + 2, max(self._over.values()) + 4)
        self._device("Context Sync", "cuda_sync", -1, start, self._now - start, correlation=correlation)


def without_sync_events(events: list[Event]) -> list[Event]:
    """Return the same trace without synchronization events."""
    return [event for event in events if event["cat"] != "cuda_sync"]


def on_one_thread(events: list[Event]) -> list[Event]:
    """Return the same trace with the events of the autograd thread moved to the main thread, which idles meanwhile."""
    return [{**event, "tid": MAIN} if event["tid"] == ENGINE else event for event in events]

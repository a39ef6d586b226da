"""Kineto-shaped GPU traces of any size, as a stream of bytes, with the results that a reader should get.

A few steps are planned once as events in integer nanoseconds. Their text becomes a format with one slot for
each number that changes between steps (time, correlation, External id, flow id, step number). A trace of any
length repeats these formats with new numbers. `expected` counts the plan and never reads the text.

Each stream's kernels follow one another and CPU slices nest, so that Perfetto drops nothing. Unlike Kineto,
which writes all CPU ops first, this module writes the events of each step together.

    python -m tests.traces OUT.json.gz --megabytes 500

`write_examples` makes the example of the documents, which is committed:

    python -m tests.traces --examples docs/examples
"""

import argparse
import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from tests.traces_example import example_text, simulated
from tests.traces_plan import DECIMALS, SLOTS, VARIANTS, Document, Era, Event, Layout, TraceShape, plan_of
from tests.traces_text import FRAMES, envelope, sections

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "Compression",
    "Document",
    "Era",
    "Expected",
    "ExpectedStep",
    "Layout",
    "TraceShape",
    "examples",
    "expected",
    "sized",
    "trace_chunks",
    "write_examples",
    "write_trace",
]

Compression = Literal["none", "gzip", "multi-member-gzip", "zstd"]
MEMBER_BYTES = 1 << 16  # bytes of JSON in one member of a multi-member gzip file


class ExpectedStep(NamedTuple):
    """An expected `ProfilerStep#N` on the CPU."""

    number: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Expected:
    """Expected results of reading the trace. Times are ns in the trace's own clock."""

    counts: dict[str, int]  # by "ph|cat"; cat is empty if absent
    events: int
    start_ns: int  # first ts of all X and i events
    end_ns: int  # last ts + dur of these events, without the mark of the record window
    base_ns: int | None
    streams: list[str]  # "device/stream" of all kernels, copies and sets
    devices: list[int]
    steps: list[ExpectedStep]
    rank: int | None
    world_size: int | None
    backend: str | None


def expected(shape: TraceShape) -> Expected:
    """Compute the expected results for `shape` from its plan."""
    plan = plan_of(shape)
    counts: Counter[str] = Counter(map(_key, [*plan.opening, *plan.closing]))
    for turn, step in enumerate(plan.variants):
        rounds = len(range(turn, shape.steps, VARIANTS))
        for key, count in Counter(map(_key, step.events)).items():
            counts[key] += count * rounds
    # the opening and closing events start before all steps and end after them
    around = [*plan.opening, *plan.closing]
    timed = [event for event in around if event["ph"] in "Xi" and event.get("name") != "Record Window End"]
    gpu = {
        (event["pid"], event["tid"])
        for step in plan.variants[: shape.steps]
        for event in step.events
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}
    }
    enveloped = shape.document == "object" and shape.distributed
    return Expected(
        counts={key: count for key, count in sorted(counts.items()) if count},
        events=counts.total(),
        start_ns=min(event["ts"] for event in timed),
        end_ns=max(event["ts"] + event.get("dur", 0) for event in timed),
        base_ns=shape.base_ns,
        streams=[f"{device}/{stream}" for device, stream in sorted(gpu)],
        devices=sorted({device for device, _ in gpu}),
        steps=[
            ExpectedStep(number, f"ProfilerStep#{number}", at, at + plan.variants[turn % VARIANTS].dur)
            for turn, (number, at) in enumerate(enumerate(plan.starts, shape.first_step))
        ],
        rank=shape.rank if enveloped else None,
        world_size=shape.world_size if enveloped else None,
        backend="nccl" if enveloped else None,
    )


def trace_chunks(shape: TraceShape) -> Iterator[bytes]:
    """Yield the document of `shape` in chunks of at most `SECTION` events."""
    plan, frame = plan_of(shape), FRAMES[shape.layout]
    before, after = envelope(shape)
    joint = frame.event_joint.encode()
    still = dict.fromkeys(SLOTS, 0)
    opening = [section.fill(still) for section in sections(plan.opening, shape)]
    yield before.encode() + opening[0].removeprefix(joint)
    yield from opening[1:]

    texts = [sections(step.events, shape) for step in plan.variants]
    ids: Counter[str] = Counter()
    for turn, at in enumerate(plan.starts):
        bases = {**still, **ids, "step": shape.first_step + turn, "us": at // 1000}
        for section in texts[turn % VARIANTS]:
            yield section.fill(bases)
        ids.update(plan.variants[turn % VARIANTS].ids)

    for section in sections(plan.closing, shape):
        yield section.fill(still)
    yield after.encode()


def write_trace(path: Path | str, shape: TraceShape, *, compress: Compression = "none") -> Path:
    """Write the document of `shape` to `path` in chunks, compressed by `compress` whatever the path's suffix is.

    A multi-member file begins a new member every 64 KiB of JSON, even inside an event.
    """
    path = Path(path)
    with path.open("wb", buffering=1 << 20) as file:
        if compress == "multi-member-gzip":
            _write_members(file, trace_chunks(shape))
        else:
            with _compressor(file, compress) as target:
                for chunk in trace_chunks(shape):
                    target.write(chunk)
    return path


def sized(shape: TraceShape, size: int) -> TraceShape:
    """Return `shape` with enough steps for about `size` bytes of JSON, at least one."""
    empty, round_trip = (sum(map(len, trace_chunks(replace(shape, steps=n)))) for n in (0, VARIANTS))
    return replace(shape, steps=max(1, round((size - empty) * VARIANTS / (round_trip - empty))))


def examples() -> dict[str, bytes]:
    """The example traces of the documents, by file name: the document of each rank."""
    return {f"gpt_rank{rank.rank}.pt.trace.json.gz": example_text(rank) for rank in simulated()}


def write_examples(folder: Path) -> None:
    """Write the example traces into `folder`, gzipped without name and time."""
    for name, text in examples().items():
        folder.joinpath(name).write_bytes(gzip.compress(text, 9, mtime=0))


def _compressor(file: IO[bytes], compress: Compression) -> AbstractContextManager[IO[bytes]]:
    match compress:
        case "none":
            return nullcontext(file)
        case "zstd":
            return cast(IO[bytes], zstd.open(file, "wb", level=3))
        case _:
            # no name and no time inside, so that equal shapes make equal files
            return cast(IO[bytes], gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0))


def _write_members(file: IO[bytes], chunks: Iterator[bytes]) -> None:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) > MEMBER_BYTES:
            file.write(gzip.compress(buffer[:MEMBER_BYTES], 1, mtime=0))
            del buffer[:MEMBER_BYTES]
    file.write(gzip.compress(buffer, 1, mtime=0))


def _key(event: Event) -> str:
    return f"{event['ph']}|{event.get('cat', '')}"


def _main() -> None:
    parser = argparse.ArgumentParser("python -m tests.traces", description="Write a trace of a given size.")
    parser.add_argument("out", type=Path, help="OUT.json, OUT.json.gz or OUT.json.zst; a folder with --examples")
    parser.add_argument("--examples", action="store_true", help="write the example traces of the documents")
    parser.add_argument("--megabytes", type=float, default=100, help="of JSON, before compression")
    parser.add_argument("--kernels", type=int, default=1000, help="in a step")
    parser.add_argument("--era", choices=list(DECIMALS), default="relative")
    parser.add_argument("--layout", choices=list(FRAMES), default="kineto")
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--members", action="store_true", help="many gzip members")
    options = parser.parse_args()
    if options.examples:
        write_examples(options.out)
        return
    shape = TraceShape(kernels=options.kernels, era=options.era, layout=options.layout, stacks=options.stacks)
    shape = sized(shape, int(options.megabytes * 1e6))
    zipped: Compression = "multi-member-gzip" if options.members else "gzip"
    by_suffix: dict[str, Compression] = {".gz": zipped, ".zst": "zstd"}
    write_trace(options.out, shape, compress=by_suffix.get(options.out.suffix, "none"))
    totals = expected(shape)
    print(f"{options.out}: {shape.steps} steps, {totals.events} events, {options.out.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    _main()

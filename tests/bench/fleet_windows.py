"""Bytes that a window of one rank reads from a bucket, and the time that it takes."""

import os
import sys
import time
from pathlib import Path

from service.fleet.dataset import Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.record import Record
from service.fleet.sources import find_sources
from service.fleet.windows import WindowRequest, window_of
from service.fleet.workers.here import Here
from service.store.folder import EVENTS
from service.store.locations.location import location_of
from service.trace.selection import Selection, Window
from tests.store.counting_proxy import CountingProxy, counting_proxy
from tests.store.s3 import S3Server, until_it_has_room
from tests.traces import TraceShape, sized, write_trace

SHAPES = {"24 kernels a step": TraceShape(), "1,000 kernels a step": TraceShape(kernels=1000)}
STARTS = (0.0, 0.25, 0.5, 0.75, 0.99)
SHARE = 0.01


def windows(folder: Path, megabytes: float = 1900) -> None:
    """Print the bytes that windows of 1 % read from an S3 server, for a large trace of each shape."""
    (folder / "s3").mkdir()
    server = S3Server(folder / "s3")
    server.start()
    try:
        with counting_proxy(server.url) as proxy:
            os.environ.update(server.environment | {"AWS_ENDPOINT_URL": proxy.url})
            for number, (name, shape) in enumerate(SHAPES.items()):
                bucket = location_of(f"s3://traces/{number}")
                until_it_has_room(bucket)
                run = folder / f"run-{number}"
                run.mkdir()
                source = write_trace(run / "rank0.json", sized(shape, int(megabytes * 1e6)))
                size = source.stat().st_size
                dataset = Dataset.create(f"{bucket.url}/dataset")
                ingest_sources(dataset, find_sources([str(run)], None, dataset.location.url), Here())
                source.unlink()
                _measure(f"{name}, {size / 1e6:,.0f} MB of JSON", dataset, proxy)
    finally:
        server.kill()


def _measure(name: str, dataset: Dataset, proxy: CountingProxy) -> None:
    [record] = dataset.records().values()
    files = {entry.name: entry.size for entry in dataset.location.entries(f"traces/{record.trace}")}
    events = next(size for file, size in files.items() if file.endswith(EVENTS))
    streams = dataset.summary(record.trace).streams
    middle = (record.first_step or 0) + record.steps // 2
    selections = {
        **{f"1 % from {100 * start:.0f} %": _window(record, start) for start in STARTS},
        **{f"1 %, stream {stream}": _window(record, 0.5, [stream]) for stream in streams},
        "one step": Selection(steps=[middle]),
    }
    for label, selection in selections.items():
        opened, sent, responses = Dataset.open(dataset.location.url), proxy.received, proxy.responses
        started = time.perf_counter()
        with window_of(opened, WindowRequest(selection)) as cut:
            size = sum(map(len, cut.chunks))
        seconds, read = time.perf_counter() - started, opened.location.meter.size
        if label.startswith("1 % from 0"):
            sys.stdout.write(f"{name}: {cut.size_bytes / 1e6:.1f} MB of files, {events / 1e6:.1f} MB of them events\n")
        sys.stdout.write(
            f"  {label:16} {read / 1e6:5.2f} MB read, {100 * read / cut.size_bytes:.2f} % of the files"
            f" ({100 * read / events:.2f} % of the events); the server sent {(proxy.received - sent) / 1e6:.2f} MB in"
            f" {proxy.responses - responses} answers; {seconds:.2f} s for {size / 1e6:.1f} MB of JSON\n"
        )
        sys.stdout.flush()


def _window(record: Record, start: float, streams: list[str] | None = None) -> Selection:
    first, last = record.start_ns or 0, record.end_ns or 0
    at = first + int(start * (last - first))
    return Selection(window=Window(start_ns=at, end_ns=at + int(SHARE * (last - first))), streams=streams)

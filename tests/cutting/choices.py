"""Random selections that match events of a trace, small hostile traces, and columns of many small parts."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
from hypothesis import strategies as st

from service.attribution import file as links_file
from service.cutting.rows import kept_rows
from service.jobs.ingest import ingest
from service.store import columns
from service.store.folder import EVENTS
from service.store.parts import Parts
from service.trace.selection import Selection
from service.trace.summary import Summary
from tests.brute import CLOSURE, GPU, Document, Event
from tests.columns import Number, Object, written

Chosen = dict[str, Any]  # a client's selection, or the criteria of a selection


class Cut:
    """Columns of a trace, and the events in them that selections keep."""

    def __init__(self, folder: Path, *, row_group: int, untimed_apart: bool) -> None:
        events = folder / "columns" / EVENTS
        small_parts = mock.patch.multiple(columns, ROW_GROUP=row_group)
        small_links = mock.patch.multiple(links_file, _ROW_GROUP=row_group)
        with small_parts, small_links, (folder / "original").open("rb") as original:
            self.summary = ingest(original, folder / "columns", "trace.json", lambda _: None)
        if not untimed_apart:
            table, with_statistics = pq.read_table(events), columns._PRUNED
            pq.write_table(table, events, row_group_size=row_group, write_statistics=with_statistics)
        self.parts = Parts(events)
        self.positions: list[int] = pq.read_table(events)["position"].to_pylist()

    def kept(self, *selections: Chosen) -> list[list[int]]:
        """Return the positions of the events that each selection keeps, in one pass."""
        bits = kept_rows(self.parts, [Selection.parsed(selection) for selection in selections], self.summary).tolist()
        rows = list(zip(self.positions, bits, strict=True))
        return [sorted(at for at, bit in rows if bit >> place & 1) for place in range(len(selections))]


def edges_of(summary: Summary) -> tuple[int, int]:
    """Return the first start and the last end of a trace's events, in ns."""
    assert summary.bounds
    return summary.bounds["start_ns"], summary.bounds["end_ns"]


@contextmanager
def cut(text: str | bytes, *, row_group: int = 3, untimed_apart: bool = True) -> Iterator[Cut]:
    """Ingest a document into columns with parts of the given number of events.

    Ingest writes untimed events into parts of their own; other writers may not.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "original").write_bytes(text.encode() if isinstance(text, str) else text)
        columns_of_document = Cut(Path(folder), row_group=row_group, untimed_apart=untimed_apart)
        yield columns_of_document
        columns_of_document.parts.close()


def text_of(*events: dict[str, Any], **around: Any) -> str:
    """Return a document with the given events and other members."""
    return written(_value({**around, "traceEvents": list(events)}))


def _value(value: Any) -> Any:
    match value:
        case dict():
            return Object((key, _value(item)) for key, item in value.items())
        case list():
            return [_value(item) for item in value]
        case Decimal():
            return Number(f"{value:f}")
        case bool() | None | str() | Number():
            return value
        case _:
            return Number(str(value))


# -- random selections ------------------------------------------------------------------------------------------


def selection_of(document: Document, random: Random) -> Chosen:
    """Return a random selection that probably matches an event."""
    chosen = _criteria(document, random, random.choice((1, 1, 1, 2, 2, 3, 0)))
    if random.random() < 0.35:
        chosen["exclude"] = _criteria(document, random, random.choice((1, 1, 2)))
    if random.random() < 0.5:
        chosen["straddle"] = random.choice(("keep", "start", "clip"))
    if random.random() < 0.4:
        chosen["closure"] = {part: random.random() < 0.5 for part in CLOSURE if random.random() < 0.5}
    return chosen


def selections_of(document: Document, random: Random) -> Iterator[Chosen]:
    """Yield random selections endlessly."""
    while True:
        yield selection_of(document, random)


def _criteria(document: Document, random: Random, count: int) -> Chosen:
    """Return random criteria that a random event of the trace meets, and sometimes others too."""
    if not document.happened:
        return {}
    event, other_event = random.choice(document.happened), random.choice(document.happened)
    criteria: Chosen = {}
    for name in random.sample(list(_MAKERS), count):
        value = _MAKERS[name](document, event, random)
        other_value = _MAKERS[name](document, other_event, random) if random.random() < 0.4 else None
        if isinstance(value, list) and isinstance(other_value, list):
            value = value + other_value
        if value is not None:
            criteria[name] = value
    return criteria


def _window(document: Document, event: Event, random: Random) -> Chosen | None:
    if event.start is None:
        return random.choice((None, {}, {"end_ns": random.randrange(-1, 9000)}))
    reach = random.choice((0, 1, event.lasts, 1000, 100_000, 10_000_000))
    relative = document.first is not None and random.random() < 0.5
    zero = document.first or 0 if relative else 0
    start = event.start + random.choice((-reach, 0, 1, reach, event.lasts // 2)) - zero
    end = max(event.end - zero, start) + random.choice((1, reach + 1, -event.lasts // 2, 1000))
    edges: Chosen = {"start_ns": start, "end_ns": end}
    names = [event.name for event in random.choices(document.slices, k=2)] if document.slices else []
    for edge, word, name in zip(list(edges), ("from", "to"), names, strict=False):
        if name is not None and random.random() < 0.25:
            del edges[edge]
            edges[word] = name
        elif random.random() < 0.2:
            del edges[edge]
    return {"relative": True, **edges} if relative else edges


def _steps(document: Document, _: Event, random: Random) -> list[int] | None:
    return random.choices(sorted(document.steps), k=random.choice((1, 1, 2))) if document.steps else None


def _threads(document: Document, event: Event, random: Random) -> list[int | str] | None:
    pid, tid = event.track
    return [random.choice([name for name in (tid, f"{pid}/{tid}", document.names.get(event.track, "")) if name != ""])]


def _processes(document: Document, event: Event, random: Random) -> list[int | str] | None:
    pid = event.track[0]
    keys = [name for name in (pid, document.names.get((pid,), "")) if name != ""]
    return [random.choice(keys)] if keys else None


def _names(_: Document, event: Event, random: Random) -> list[str] | None:
    if event.name is None:
        return random.choice((None, ["*"]))
    start, end = sorted((random.randint(0, len(event.name)), random.randint(0, len(event.name))))
    piece = event.name[start:end]
    return [
        random.choice(
            (
                event.name,
                event.name[:start] + "*" + event.name[end:],
                event.name[:start] + "?" + event.name[start + 1 :],
                "re:" + re.escape(piece),
                "re:^" + re.escape(piece) + "$",
            )
        )
    ]


def _devices(document: Document, event: Event, random: Random) -> list[int] | None:
    devices = {item.device for item in document.events if item.cat in GPU and item.device is not None}
    candidates = [event.device] if event.device in devices else sorted(devices)
    return [random.choice(candidates)] if candidates else None


def _streams(document: Document, event: Event, random: Random) -> list[str] | None:
    places = {(item.device, item.stream) for item in document.events if item.cat in GPU}
    candidates = [f"{device}/{stream}" for device, stream in places if None not in (device, stream)]
    own = f"{event.device}/{event.stream}"
    return [own if own in candidates else random.choice(sorted(candidates))] if candidates else None


_MAKERS: dict[str, Callable[[Document, Event, Random], Any]] = {
    "window": _window,
    "steps": _steps,
    "ranks": lambda document, _, __: None if document.rank is None else [document.rank],
    "devices": _devices,
    "streams": _streams,
    "threads": _threads,
    "processes": _processes,
    "categories": lambda _, event, __: [event.cat],
    "names": _names,
    "phases": lambda _, event, __: [event.ph],
    "min_dur_ns": lambda _, event, random: random.randint(0, event.lasts),
}


# -- hostile documents ------------------------------------------------------------------------------------------

small_ids = st.integers(1, 3)
args = st.fixed_dictionaries(
    {},
    optional={
        "device": st.integers(0, 1),
        "stream": st.sampled_from([0, 7]),
        "correlation": small_ids,
        "External id": small_ids,
        "external id": small_ids | st.just("1"),
        "name": st.sampled_from(["main ", "7", "python"]),
    },
)
categories = st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "hip_driver", "Runtime", "Trace"]) | (
    st.sampled_from(["cpu_op", "user_annotation", "User", "ac2g", "async", "fwdbwd"])
)
times = st.sampled_from([0, 1, 2, 3, 4, 5, Decimal("1.5"), Decimal("2.001"), Decimal("2.0015"), Decimal("-0.5")])
happenings = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XXXXXstfiC"),
        "cat": categories,
        "name": st.sampled_from(["a", "b\n", "ab", "ProfilerStep#1", "ProfilerStep#2"]),
        "pid": st.sampled_from([0, 1, "1", ""]),
        "tid": st.sampled_from([0, 7, "7", "stream 7 ", ""]),
        "ts": times | times | times | st.sampled_from(["1", None]),
        "dur": times,
        "id": small_ids | small_ids | st.sampled_from(["1", "a", None, 10**18, Decimal("1.5")]),
        "args": args | args | args | st.sampled_from([None, [1]]),
    },
)
names = st.fixed_dictionaries(
    {"ph": st.just("M")},
    optional={
        "cat": st.just("__metadata"),
        "name": st.sampled_from(["process_name", "process_labels", "thread_name", "thread_sort_index"]),
        "pid": st.sampled_from([0, 1, "1", ""]),
        "tid": st.sampled_from([0, 7, "7", ""]),
        "ts": times,
        "args": args,
    },
)
# GPU work, its launch, its operator and the arrow between them, linked far more often than by chance
spots = st.fixed_dictionaries({"pid": st.integers(0, 1), "tid": st.sampled_from([0, 7]), "ts": st.integers(0, 5)})


@st.composite
def launches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw an operator, a launch in it, its GPU work, and the arrow from launch to work; any may be missing."""
    number, external, spot, other_spot = draw(small_ids), draw(small_ids), draw(spots), draw(spots)
    linked = {"correlation": number, "External id": external}
    lasting = {"ph": "X", "dur": draw(st.integers(0, 3))}
    arrow = {"cat": draw(st.sampled_from(["ac2g", "ac2g", "async"])), "id": number}
    events = [
        {**lasting, **spot, "cat": "cpu_op", "name": "a", "args": {"External id": external}},
        {**lasting, **spot, "cat": "cuda_runtime", "name": "b", "args": linked},
        {**lasting, **other_spot, "cat": "kernel", "name": "k", "args": {**linked, "device": 0, "stream": 7}},
        {"ph": "s", **spot, **arrow, "ts": draw(st.integers(0, 5))},
        {"ph": "f", **other_spot, **arrow},
    ]
    return draw(st.lists(st.sampled_from(events), unique_by=events.index, max_size=5))


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw a document of a few events, with times since the epoch or on the document's own clock."""
    singles = st.lists(happenings | happenings | names, max_size=10)
    events = [*draw(singles), *(event for linked in draw(st.lists(launches(), max_size=3)) for event in linked)]
    zero = draw(st.sampled_from([0, 1_712_195_495_505_582]))
    for at, event in enumerate(events):
        if isinstance(event.get("ts"), int | Decimal):
            events[at] = {**event, "ts": event["ts"] + zero}
    around = draw(st.sampled_from([{}, {"distributedInfo": {"rank": 3, "world_size": 4}}]))
    return text_of(*draw(st.permutations(events)), **around)

"""The text of a generated trace, in each layout: its envelope, and its events as formats to fill."""

import itertools
import json
import operator
import re
import textwrap
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from tests.traces_plan import DECIMALS, Event, Layout, TraceShape

SECTION = 256  # events in one chunk


class _Frame(NamedTuple):
    """The text between the parts of a document."""

    open: str
    joint: str
    events_open: str
    event_joint: str
    events_close: str
    close: str


FRAMES: Mapping[Layout, _Frame] = {
    "kineto": _Frame("\n{\n  ", ",\n  ", "[\n  ", ",\n  ", "\n  ]", "\n}"),
    "kineto_2026": _Frame(" {\n    ", ",\n    ", "[\n    \n  ", ",\n  ", "\n  ]", " }"),
    "one_line": _Frame("{", ", ", "[", ", ", "]", "}"),
    "indented": _Frame("{\n  ", ",\n  ", "[\n    ", ",\n    ", "\n  ]", "\n}"),
}
# the keys that share a line in Kineto's text until 2025
LINES = {
    "X": (("ph", "cat", "name", "pid", "tid"), ("ts", "dur"), ("args",)),
    "i": (("name", "ph", "cat", "s"), ("pid", "tid", "ts"), ("args",)),
    "M": (("name", "ph", "ts", "pid", "tid"), ("args",)),
    "s": (("ph", "id", "pid", "tid", "ts"), ("cat", "name")),
    "f": (("ph", "id", "pid", "tid", "ts"), ("cat", "name", "bp")),
}
SLOT = re.compile(r'"@@(\w+):(\d+)(\.\d+)?@@"|@(\w+):(\d+)@|"@@=([\d.]+)@@"')


class Section:
    """The text of some events as one format, and the values of its slots."""

    def __init__(self, text: str) -> None:
        self.kinds: list[str] = []
        self.offsets: list[int] = []
        self.format = SLOT.sub(self._slot, text.replace("%", "%%")).encode()

    def _slot(self, match: re.Match[str]) -> str:
        kind, offset, fraction, inner_kind, inner_offset, literal = match.groups()
        if literal:
            return str(literal)
        self.kinds.append(kind or inner_kind)
        self.offsets.append(int(offset or inner_offset))
        return "%d" + (fraction or "")

    def fill(self, bases: Mapping[str, int]) -> bytes:
        """Return the text with each slot filled: its offset plus the base of its kind."""
        return self.format % tuple(map(operator.add, self.offsets, map(bases.__getitem__, self.kinds)))


def sections(events: list[Event], shape: TraceShape) -> list[Section]:
    joint = FRAMES[shape.layout].event_joint
    texts = [joint + _text(event, shape) for event in events]
    return [Section("".join(texts[at : at + SECTION])) for at in range(0, len(texts), SECTION)]


def _text(event: Event, shape: TraceShape) -> str:
    decimals = DECIMALS[shape.era]
    moments = {"ts": f"@@us:{_us(event['ts'], decimals)}@@"}
    if "dur" in event:
        moments["dur"] = f"@@={_us(event['dur'], decimals)}@@"
    event = event | moments
    match shape.layout:
        case "one_line":
            return json.dumps(event)
        case "indented":
            return textwrap.indent(json.dumps(event, indent=2), "    ").lstrip()
        case "kineto":
            lines = [[(key, event[key]) for key in line if key in event] for line in LINES[event["ph"]]]
            text = ",\n    ".join(", ".join(itertools.starmap(_pair, line)) for line in lines if line)
            return f"{{\n    {text}\n  }}"
        case "kineto_2026":
            text = ",\n    ".join(_pair(key, value) for key, value in event.items() if key != "args")
            args = f"\n    ,\n    {_pair('args', event['args'])}" if "args" in event else "\n    "
            return f"{{\n    {text}{args}\n  }}"


def _us(ns: int, decimals: int) -> str:
    microseconds, fraction = divmod(ns, 1000)
    return f"{microseconds}.{fraction:03d}"[: len(str(microseconds)) + 1 + decimals] if decimals else str(microseconds)


def _pair(key: str, value: object) -> str:
    """`"key": value`, where args open a line of their own, as Kineto writes them."""
    if key != "args" or not isinstance(value, dict):
        return f"{json.dumps(key)}: {json.dumps(value)}"
    return '"args": {\n      ' + ", ".join(itertools.starmap(_pair, value.items())) + "\n    }"


def envelope(shape: TraceShape) -> tuple[str, str]:
    """The text before the first event and after the last one."""
    frame = FRAMES[shape.layout]
    if shape.document == "array":
        return frame.events_open, frame.events_close
    clock: dict[str, object] = {"displayTimeUnit": "ms"}
    if shape.base_ns is not None:
        clock["baseTimeNanoseconds"] = shape.base_ns
    name: dict[str, object] = {"traceName": f"/tmp/rank{shape.rank or 0}.pt.trace.json"}
    before, after = _header(shape), {**name, **clock}
    if shape.base_position != "after":
        before, after = {**before, **clock}, name
    parts = [
        *(_entry(key, value, shape) for key, value in before.items()),
        '"traceEvents": ' + frame.events_open,
    ]
    ending = [frame.events_close, *(_entry(key, value, shape) for key, value in after.items())]
    return frame.open + frame.joint.join(parts), frame.joint.join(ending) + frame.close


def _header(shape: TraceShape) -> dict[str, object]:
    gpu = {"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_097_971_712, "computeMajor": 8}
    limits = {"maxThreadsPerBlock": 1024, "regsPerBlock": 65536, "warpSize": 32, "numSms": 108}
    header: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": device, **gpu, **limits} for device in range(8)],
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
    }
    if shape.distributed:
        ranks = list(range(shape.world_size or 0))
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl"}
        header["distributedInfo"] = {
            "backend": "nccl",
            "rank": shape.rank,
            "world_size": shape.world_size,
            "pg_count": 1,
            "pg_config": [{**group, "pg_size": len(ranks), "ranks": ranks}],
            "nccl_version": "2.21.5",
        }
    trace_id = f"{Random(shape.seed).getrandbits(128):032X}"
    return {**header, "with_stack": int(shape.stacks), "trace_id": trace_id, "host_name": "node-0"}


def _entry(key: str, value: object, shape: TraceShape) -> str:
    is_multiline = shape.layout == "indented" or (shape.layout != "one_line" and isinstance(value, list))
    text = json.dumps(value, indent=2 if is_multiline else None)
    return f"{json.dumps(key)}: {textwrap.indent(text, '  ').lstrip()}"

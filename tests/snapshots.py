"""Memory snapshots of any size and generation, as pickles."""

import pickle
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

Entry = dict[str, Any]
START_US = 1_800_000_000_000_000
BASE = 0x7F0000000000
MB = 1 << 20
GOLDEN = {
    "mem_softmax_peak": "mem_softmax_peak.pickle",
    "mem_forward_fp32": "mem_forward_fp32.pickle",
    "mem_inference_user_metadata": "mem_inference_user_metadata.pickle",
    "mem_own_all_actions": "mem_own_all_actions_p4.pickle",
}
"""The files of the golden snapshots, by name."""


def frame(line: int, name: str = "forward", filename: str = "/home/ann/model.py") -> Entry:
    """Return a frame of a stack."""
    return {"filename": filename, "line": line, "name": name}


STACKS = [[frame(0, "torch::unwind::unwind()", "??"), frame(10 + line), frame(99, "<module>")] for line in range(8)]


def entry(action: str, address: int, size: int, time_us: int | None = None, **more: Any) -> Entry:
    """Return an entry of a device's trace; one without a time is as old versions of PyTorch write it."""
    time = {} if time_us is None else {"time_us": START_US + time_us}
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: address, "size": size, "stream": 0, "frames": STACKS[0], **time, **more}


def block(address: int, size: int, state: str = "active_allocated", **more: Any) -> Entry:
    """Return a block of a segment."""
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": STACKS[1], **more}


def segment(address: int, total: int, blocks: Sequence[Entry], **more: Any) -> Entry:
    """Return a segment, whose sums are those of its blocks."""
    active = [one for one in blocks if one["state"] != "inactive"]
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "allocated_size": sum(one["size"] for one in active if one["state"] == "active_allocated"),
        "active_size": sum(one["size"] for one in active),
        "requested_size": sum(one["requested_size"] for one in active),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [*blocks],
        **more,
    }


def snapshot(*traces: Sequence[Entry], segments: Sequence[Entry] = (), **more: Any) -> dict[str, Any]:
    """Return a snapshot with a trace for each device."""
    return {"segments": [*segments], "device_traces": [[*trace] for trace in traces], **more}


def pickled(content: object, protocol: int = 4) -> bytes:
    """Return the pickle of a snapshot."""
    return pickle.dumps(content, protocol)


def freed(address: int, size: int, time_us: int | None = None, **more: Any) -> list[Entry]:
    """Return the two entries of a free."""
    return [entry(action, address, size, time_us, **more) for action in ("free_requested", "free_completed")]


SMALL = snapshot(
    [
        entry("segment_alloc", BASE, 20 * MB, 1),
        entry("alloc", BASE, 3 * MB, 2),
        entry("alloc", BASE + 4 * MB, 5 * MB, 4, frames=STACKS[2]),
        *freed(BASE, 3 * MB, 7),
        entry("oom", 7 * MB, 90 * MB, 9, frames=STACKS[3]),
    ],
    segments=[
        segment(
            BASE,
            20 * MB,
            [block(BASE, 4 * MB, "inactive"), block(BASE + 4 * MB, 5 * MB), block(BASE + 9 * MB, 11 * MB, "inactive")],
        )
    ],
    external_annotations=[
        {"stage": stage, "name": "step#1", "device": 0, "time_us": START_US + at}
        for stage, at in (("START", 1), ("END", 8))
    ],
    allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
)
"""A snapshot of one device: the peak is 8 MiB, the end 5 MiB."""

_ACTIONS = ("alloc", "free_requested", "free_completed")
_KEYS = ("action", "addr", "size", "stream", "frames", "time_us", "compile_context", "user_metadata")
_CODES = {key: "V10" if key in ("addr", "time_us") else "V5" if key in ("size", "frames") else "V2" for key in _KEYS}
_RECORD = np.dtype(
    [
        ("open", "V3"),
        *((f"{part}_{key}", _CODES[key] if part == "value" else "V2") for key in _KEYS for part in ("key", "value")),
        ("close", "V1"),
    ]
)
_BATCH = 1000


def write_large(path: Path, events: int, live: int = 1000) -> dict[str, int]:
    """Write a snapshot with many entries, from hand-made opcodes; return its figures.

    Block `i` is allocated when block ``i - live`` has been freed, at that block's address.

    Args:
        path: the file.
        events: number of entries of the trace, about.
        live: number of blocks that are alive at once.
    """
    blocks = (events + 2 * live) // 3
    number = np.arange(blocks)
    sizes = (number * 7919 % 4096 + 1) * 512
    addresses = BASE + number % live * (4 << 20)
    of = np.concatenate([number, number[:-live], number[:-live]])
    kinds = np.repeat([0, 1, 2], [blocks, blocks - live, blocks - live])
    order = np.lexsort(((kinds + 2) % 3, np.where(kinds, of + live, of)))  # free, then allocate
    kinds, of = kinds[order], of[order]
    active = np.cumsum(np.choose(kinds, [sizes[of], 0, -sizes[of]]))

    head = BytesIO()
    pickler = pickle._Pickler(head, 2)
    alive = number[-live:]
    segments = [
        segment(address, 4 << 20, [block(address, size, frames=STACKS[place % 8])])
        for address, size, place in zip(addresses[alive].tolist(), sizes[alive].tolist(), alive.tolist(), strict=True)
    ]
    words = [*_KEYS, *_ACTIONS, "N/A", ""]
    pickler.dump({"words": words, "stacks": STACKS, "segments": segments})

    def places(values: Sequence[object]) -> list[int]:
        return [pickler.memo[id(value)][0] for value in values]  # type: ignore[attr-defined] # the stub lacks it

    time_us = START_US + np.arange(len(of))
    key, (none, empty) = dict(zip(_KEYS, places(_KEYS), strict=True)), places(words[-2:])
    records = np.zeros(len(of), _RECORD)
    raw = {
        "action": (b"h", np.array(places(_ACTIONS), "u1")[kinds]),
        "addr": (b"\x8a\x08", addresses[of].astype("<i8")),
        "size": (b"J", sizes[of].astype("<i4")),
        "stream": (b"K", np.zeros(len(of), "u1")),
        "frames": (b"j", np.array(places(STACKS), "<i4")[of % len(STACKS)]),
        "time_us": (b"\x8a\x08", time_us.astype("<i8")),
        "compile_context": (b"h", np.full(len(of), none, "u1")),
        "user_metadata": (b"h", np.full(len(of), empty, "u1")),
    }
    columns = records.view("u1").reshape(len(of), _RECORD.itemsize)

    def put(field: str, values: Any) -> None:
        offset, width = _RECORD.fields[field][1], _RECORD.fields[field][0].itemsize  # type: ignore[index]
        columns[:, offset : offset + width] = values

    put("open", list(b"}\x94("))
    put("close", list(b"u"))
    for name, (code, values) in raw.items():
        put(f"key_{name}", [ord("h"), key[name]])
        bytes_ = values.view("u1").reshape(len(of), values.itemsize)
        put(f"value_{name}", np.concatenate([np.tile(np.frombuffer(code, "u1"), (len(of), 1)), bytes_], 1))
    with path.open("wb") as file:
        file.write(head.getvalue()[:-2])  # without SETITEMS and STOP
        file.write(b"\x8c\x0ddevice_traces]\x94]\x94")
        for start in range(0, len(of), _BATCH):
            file.write(b"(" + records[start : start + _BATCH].tobytes() + b"e")
        file.write(b"au.")
    peak = int(active.argmax())
    return {"entries": len(of), "peak_bytes": int(active[peak]), "peak_index": peak, "end_bytes": int(active[-1])}

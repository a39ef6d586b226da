"""The replay of a trace agrees with a plain loop over a made history, at every prefix, and with the golden figures."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.memory_snapshot.contents import contents_of
from service.formats.memory_snapshot.opcodes import unpickled
from service.formats.memory_snapshot.reader import held_blocks, reserved_bytes
from service.formats.memory_snapshot.replay import Replay, replay
from service.formats.memory_snapshot.snapshot import Snapshot
from tests.conftest import SHARED, needs_shared
from tests.snapshots import BASE, GOLDEN, MB, SMALL, block, entry, freed, pickled, segment, snapshot

INPUTS = SHARED.parent / "inputs"


def content(pickle: bytes) -> Snapshot:
    return contents_of(unpickled([pickle])[0])


def replayed(snapshot: Snapshot, place: int = 0) -> Replay:
    trace = snapshot.traces[place]
    return replay(trace, held_blocks(snapshot, trace.device), reserved_bytes(snapshot, trace.device))


class Allocator:
    """A plain model of the allocator: it makes the entries of a history, and the state after each."""

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, bool]] = {}
        self.reserved = [64 * MB]
        self.entries: list[dict[str, Any]] = []
        self.states: list[tuple[int, int, int, set[tuple[int, int]]]] = [self._state()]

    def _state(self) -> tuple[int, int, int, set[tuple[int, int]]]:
        sizes = self.live.values()
        return (
            sum(size for size, _ in sizes),
            sum(size for size, pending in sizes if not pending),
            sum(self.reserved),
            {(address, size) for address, (size, _) in self.live.items()},
        )

    def _note(self, action: str, address: int, size: int) -> None:
        self.entries.append(entry(action, address, size, len(self.entries)))
        self.states.append(self._state())

    def step(self, kind: int, choice: int, size: int) -> None:
        pending = [address for address, (_, is_pending) in self.live.items() if is_pending]
        held = [address for address in self.live if address not in pending]
        unused = [BASE + place * MB for place in range(12) if BASE + place * MB not in self.live]
        if kind in (0, 1) and unused:
            address = unused[choice % len(unused)]
            self.live[address] = size, False
            self._note("alloc", address, size)
        elif kind == 2 and held:
            address = held[choice % len(held)]
            self.live[address] = self.live[address][0], True
            self._note("free_requested", address, self.live[address][0])
        elif kind == 3 and pending:
            address = pending[choice % len(pending)]
            freed_size, _ = self.live.pop(address)
            self._note("free_completed", address, freed_size)
        elif kind == 4:
            self.reserved.append(2 * MB)
            self._note(("segment_alloc", "segment_map")[choice % 2], BASE + (1 << 40) + choice, 2 * MB)
        elif kind == 5 and len(self.reserved) > 1:
            self.reserved.pop()
            self._note(("segment_free", "segment_unmap")[choice % 2], BASE + (1 << 40), 2 * MB)
        elif kind == 6:
            self._note(("oom", "snapshot")[choice % 2], choice, size)

    def snapshot(self, dropped: int) -> dict[str, Any]:
        """Return the snapshot at the end, without the oldest entries."""
        states = {True: "active_pending_free", False: "active_allocated"}
        blocks = [
            block(address, size + 511 & ~511, states[pending], requested_size=size)
            for address, (size, pending) in self.live.items()
        ]
        segments = [
            segment(BASE + place * (1 << 36), total, blocks if place == 0 else [])
            for place, total in enumerate(self.reserved)
        ]
        return snapshot(self.entries[dropped:], segments=segments)


STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 100), st.integers(1, 1000)), max_size=60)


@given(steps=STEPS, dropped=st.floats(0, 1))
def test_replay_equals_a_plain_loop_at_every_prefix(steps: Sequence[tuple[int, int, int]], dropped: float) -> None:
    allocator = Allocator()
    for step in steps:
        allocator.step(*step)
    first = int(dropped * len(allocator.entries))

    result = replayed(content(pickled(allocator.snapshot(first))))

    states = allocator.states[first:]
    assert [result.start[0], *result.active.tolist()] == [state[0] for state in states]
    assert [result.start[1], *result.allocated().tolist()] == [state[1] for state in states]
    assert [result.start[2], *result.reserved.tolist()] == [state[2] for state in states]
    blocks = result.blocks
    for number, state in enumerate(states):
        live = blocks.live(number - 1)
        assert {*zip(blocks.addresses[live].tolist(), blocks.sizes[live].tolist(), strict=True)} == state[3]
        assert live.sum() == len(state[3])
    assert not result.contradictions


@needs_shared
@pytest.mark.parametrize("name", GOLDEN)
def test_real_snapshots_have_their_golden_figures(name: str) -> None:
    golden = json.loads((INPUTS / f"{name}.golden.json").read_text())
    read = content((INPUTS / GOLDEN[name]).read_bytes())

    for place, expected in enumerate(golden["devices"]):
        result, trace = replayed(read, place), read.traces[place]
        assert len(trace.actions) == expected["entries"]
        assert not result.contradictions
        assert result.start[0] == expected["start"]["active_bytes"]
        assert result.start[2] == expected["start"]["reserved_bytes"]
        at_start = result.blocks.at_start
        assert at_start.sum() == expected["start"]["blocks"]
        assert (at_start & (result.blocks.ends >= 0)).sum() == expected["start"]["freed_in_trace"]
        peak, most = result.peak, expected["peak"]
        assert peak == most["entry_index"]
        values = (result.active[peak], result.allocated()[peak], result.reserved[peak]) if peak >= 0 else result.start
        assert tuple(values) == (most["active_bytes"], most["allocated_bytes"], most["reserved_bytes"])
        assert result.blocks.live(peak).sum() == most["live_blocks"]
        if len(trace.actions):
            end = expected["end"]
            assert result.active[-1] == end["active_bytes_replayed"] == end["requested_bytes_from_segments"]
            assert result.allocated()[-1] == end["allocated_bytes_replayed"]
            assert result.reserved[-1] == end["reserved_bytes"]
            assert result.reserved.max() == expected["max_reserved"]["bytes"]


def test_blocks_have_the_stacks_of_their_allocations() -> None:
    read = content(pickled(SMALL))
    blocks = replayed(read).blocks

    stack = [read.frames[number] for number in read.stacks[blocks.stacks[1]]]

    assert [line for _, _, line in stack] == [0, 12, 99]
    assert stack[1] == ("forward", "/home/ann/model.py", 12)


def test_block_from_before_the_trace_has_the_stack_of_its_free() -> None:
    trace = [*freed(BASE, 512, 1, frames=SMALL["device_traces"][0][2]["frames"])]
    read = content(pickled(snapshot(trace, segments=[segment(BASE, MB, [])])))

    blocks = replayed(read).blocks

    assert (blocks.begins.tolist(), blocks.sizes.tolist()) == ([-1], [512])
    assert read.frames[read.stacks[blocks.stacks[0]][1]][2] == 12


@pytest.mark.parametrize(
    ("entries", "segments", "what"),
    [
        ([entry("alloc", BASE, 5, 1)], [segment(BASE, MB, [])], "blocks that the trace leaves alive"),
        (freed(BASE, 5, 1), [segment(BASE, MB, [block(BASE, 5)])], "blocks at the end that the trace has freed"),
        ([entry("alloc", BASE, 5, 1)], [segment(BASE, MB, [block(BASE, 6)])], "another size at the end"),
        (
            [entry("alloc", BASE, 5, 1), entry("alloc", BASE, 5, 2)],
            [segment(BASE, MB, [block(BASE, 5)])],
            "at an address that is in use",
        ),
        ([*freed(BASE, 5, 1), *freed(BASE, 5, 2)], [segment(BASE, MB, [])], "not in use"),
        ([entry("alloc", BASE, 5, 1), *freed(BASE, 6, 1)], [segment(BASE, MB, [])], "than the allocation"),
        ([entry("alloc", BASE, 9, 1)], [segment(BASE, 8, [block(BASE, 9)])], "more is active than reserved"),
        ([entry("segment_alloc", BASE, MB, 1)], [], "negative reserved"),
    ],
)
def test_contradictions_are_counted(entries: list[Any], segments: list[Any], what: str) -> None:
    contradictions = replayed(content(pickled(snapshot(entries, segments=segments)))).contradictions

    assert any(what in text for text in contradictions)


def test_blocks_without_addresses_follow_each_other() -> None:
    blocks = [block(0, size) for size in (512, 1024, 2048)]
    for one in blocks:
        del one["address"]
    read = content(pickled(snapshot([], segments=[segment(BASE, MB, []), segment(BASE + MB, MB, blocks)])))

    assert np.diff(read.blocks.addresses).tolist() == [512, 1024]
    assert read.blocks.addresses[0] == BASE + MB

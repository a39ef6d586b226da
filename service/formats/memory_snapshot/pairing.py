"""Compiled pairing of the allocations and frees of a device into blocks."""

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import compiled

Ints = npt.NDArray[np.int64]
ShortInts = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint8]

ALLOCATES, REQUESTS, COMPLETES = range(3)
"""Codes of the actions that change blocks."""
ROW, BLOCKS, ADDRESSES, DOUBLE, UNMATCHED, RESIZED, STATE_SIZE = range(7)
"""Indices of the state: the next entry, numbers of blocks and addresses, and numbers of contradictions."""
NONE = -1

_SLOTS = 1 << 12


@compiled
def find_slot(addresses: Ints, blocks: ShortInts, address: int) -> int:
    """Return the slot of an address in a hash table; the slot's block is -1 if the table lacks the address."""
    value = address * 0x2545F4914F6CDD1D
    slot = (value ^ ((value >> 29) & 0x7FFFFFFFF)) & (blocks.size - 1)
    while blocks[slot] >= 0 and addresses[slot] != address:
        slot = (slot + 1) & (blocks.size - 1)
    return slot


@compiled
def grow(addresses: Ints, blocks: ShortInts, new_addresses: Ints, new_blocks: ShortInts) -> None:
    """Copy a hash table into a larger one."""
    new_blocks[:] = NONE
    for slot in range(blocks.size):
        if blocks[slot] >= 0:
            new_slot = find_slot(new_addresses, new_blocks, addresses[slot])
            new_addresses[new_slot] = addresses[slot]
            new_blocks[new_slot] = blocks[slot]


@compiled
def pair(
    actions: Codes,
    addresses: Ints,
    sizes: Ints,
    begins: ShortInts,
    requests: ShortInts,
    ends: ShortInts,
    state: Ints,
    slot_addresses: Ints,
    slot_blocks: ShortInts,
) -> bool:
    """Pair entries into blocks, from the state on; return False if the hash table needs to grow first.

    A free of an address that was never allocated frees a block from before the trace.

    Args:
        actions: action of each entry; other codes than those above are skipped.
        addresses: address of each entry.
        sizes: size of each entry in bytes.
        begins: gets the entry that allocates each block, or -1.
        requests: gets the entry that requests each block's free, or -1.
        ends: gets the entry that completes each block's free, or -1.
        state: the state, which changes.
        slot_addresses: addresses of the hash table.
        slot_blocks: latest block of each address of the hash table, or -1.
    """
    for row in range(state[ROW], actions.size):
        action = actions[row]
        if action > COMPLETES:
            continue
        if 2 * state[ADDRESSES] >= slot_blocks.size:
            state[ROW] = row
            return False
        slot = find_slot(slot_addresses, slot_blocks, addresses[row])
        block = slot_blocks[slot]
        known = block >= 0
        alive = known and ends[block] < 0
        if alive and action != ALLOCATES:
            first = begins[block] if begins[block] >= 0 else requests[block]
            state[RESIZED] += sizes[first] != sizes[row]
        if alive and action == ALLOCATES:
            state[DOUBLE] += 1
            ends[block] = row
        if action == ALLOCATES or not known:
            block = state[BLOCKS]
            state[BLOCKS] = block + 1
            begins[block] = row if action == ALLOCATES else NONE
            requests[block], ends[block] = NONE, NONE
            if not known:
                state[ADDRESSES] += 1
                slot_addresses[slot] = addresses[row]
            slot_blocks[slot] = block
        elif not alive or (action == REQUESTS and requests[block] >= 0):
            state[UNMATCHED] += 1
            continue
        if action == REQUESTS:
            requests[block] = row
        elif action == COMPLETES:
            ends[block] = row
    state[ROW] = actions.size
    return True


@compiled
def look_up(wanted: Ints, slot_addresses: Ints, slot_blocks: ShortInts, blocks: Ints) -> None:
    """Fill in the latest block at each address, or -1."""
    for place in range(wanted.size):
        blocks[place] = slot_blocks[find_slot(slot_addresses, slot_blocks, wanted[place])]


class Pairs:
    """Blocks of a trace, with arrays that have an item for each.

    Attributes:
        begins: entry that allocates the block, or -1.
        requests: entry that requests its free, or -1.
        ends: entry that frees it, or -1.
        contradictions: numbers of allocations at an address in use, of frees of blocks that are not in use, and of
            frees with another size than the allocation.
    """

    def __init__(self, actions: Codes, addresses: Ints, sizes: Ints) -> None:
        room = int((actions <= COMPLETES).sum())
        begins, requests, ends = (np.empty(room, np.int32) for _ in range(3))
        state = np.zeros(STATE_SIZE, np.int64)
        self._addresses, self._blocks = np.zeros(_SLOTS, np.int64), np.full(_SLOTS, NONE, np.int32)
        while not pair(actions, addresses, sizes, begins, requests, ends, state, self._addresses, self._blocks):
            larger = np.zeros(4 * len(self._blocks), np.int64), np.empty(4 * len(self._blocks), np.int32)
            grow(self._addresses, self._blocks, *larger)
            self._addresses, self._blocks = larger
        self.begins, self.requests, self.ends = (part[: state[BLOCKS]] for part in (begins, requests, ends))
        self.contradictions = (int(state[DOUBLE]), int(state[UNMATCHED]), int(state[RESIZED]))

    def latest(self, addresses: Ints) -> Ints:
        """Return the latest block at each address, or -1."""
        blocks = np.empty(len(addresses), np.int64)
        look_up(addresses, self._addresses, self._blocks, blocks)
        return blocks


def paired(actions: Codes, addresses: Ints, sizes: Ints) -> Pairs:
    """Pair the allocations and frees of a trace; the arguments are those of `pair`."""
    return Pairs(actions, addresses, sizes)

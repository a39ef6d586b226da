"""A hostile pickle is refused with what and where: it runs no code, and takes no more memory than its bytes allow."""

import pickle
import pickletools
import time
from collections.abc import Callable
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pytest

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.contents import contents_of
from service.formats.memory_snapshot.interpreter import ARGUMENT_SIZES
from service.formats.memory_snapshot.opcodes import Unpickler, unpickled
from service.formats.registry import open_trace
from service.trace.errors import IngestError, Truncated
from tests.conftest import SHARED, needs_shared
from tests.snapshots import BASE, MB, SMALL, block, entry, pickled, segment, snapshot

INPUTS = SHARED.parent / "inputs"
SECONDS_MAX = 20.0
FORBIDDEN = [opcode for opcode in pickletools.opcodes if ARGUMENT_SIZES[ord(opcode.code)] < 0]
PLAIN = pickled(SMALL, 2)


class Marker:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def read_all(reader: Unpickler, content: bytes) -> None:
    reader.read(content)
    reader.finish()
    contents_of(reader)


def refused(content: bytes) -> IngestError:
    """Read a pickle, which must be refused quickly and in bounded memory; return the error."""
    start = time.process_time()
    reader = Unpickler()
    with pytest.raises(IngestError) as error:
        read_all(reader, content)
    assert time.process_time() - start < SECONDS_MAX
    assert sum(array.nbytes for array in reader.tables) < (16 << 20) + 600 * len(content)
    return error.value


def test_most_opcodes_of_pickles_are_forbidden() -> None:
    assert len(FORBIDDEN) > 35
    allowed = {opcode.name for opcode in pickletools.opcodes} - {opcode.name for opcode in FORBIDDEN}
    assert not allowed & {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX"}
    assert not allowed & {"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "POP", "DUP", "LONG4", "BINUNICODE8"}


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("opcode", FORBIDDEN, ids=lambda opcode: opcode.name)
def test_forbidden_opcode_is_named_with_its_offset(opcode: Any, place: str) -> None:
    at = 2 if place == "start" else len(PLAIN) - 1
    content = PLAIN[:at] + opcode.code.encode("latin-1") + b"cos\nsystem\n(S'touch x'\ntR." + PLAIN[at:]

    error = refused(content)

    assert (error.code, error.extra["offset"]) == ("unreadable", at)
    assert f"opcode {opcode.name} at byte {at}" in error.detail


def test_bytes_that_are_no_opcode_are_refused() -> None:
    unknown = {*range(256)} - {ord(opcode.code) for opcode in pickletools.opcodes}
    for byte in unknown:
        assert "is not an opcode" in refused(b"\x80\x04" + bytes([byte])).detail


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"segments": one}, lambda one: snapshot([], more=[one])])
def test_code_of_a_pickle_does_not_run(protocol: int, wrap: Callable[[Any], Any], tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    content = pickle.dumps(wrap(Marker(marker)), protocol)

    refused(content)

    assert not marker.exists()
    pickle.loads(content)
    assert marker.exists()  # the pickle is dangerous


@pytest.mark.parametrize("at", range(2, len(PLAIN) - 1, 23))
def test_cut_pickle_is_truncated(at: int) -> None:
    error = refused(PLAIN[:at])

    assert isinstance(error, Truncated)
    assert error.extra["offset"] == at


NUMBERS: list[Any] = [None, "one", 1.5, [], {}, 1 << 63, True]
SIZES = [*NUMBERS, -1, 1 << 50]
TEXTS: list[Any] = [None, 1, 1.5, [], {}, (1,)]
LISTS: list[Any] = [None, 1, "one", {}, (1,), True]
FIELDS = {
    "entry": {
        "action": TEXTS, "addr": [None, "one", 1.5, [], True], "size": SIZES, "stream": NUMBERS,
        "frames": [*LISTS, [1], [{}], [[]], ["one"]], "time_us": [*NUMBERS, -1],
    },
    "frame": {"filename": TEXTS, "name": TEXTS, "line": NUMBERS},
    "block": {
        "address": [None, "one", [], True], "size": SIZES, "requested_size": SIZES, "state": TEXTS,
        "frames": LISTS,
    },
    "segment": {
        "device": [*NUMBERS, -1, 1 << 15], "address": [None, "one", []], "total_size": SIZES, "stream": NUMBERS,
        "allocated_size": SIZES, "active_size": SIZES, "requested_size": SIZES, "segment_type": TEXTS,
        "segment_pool_id": [None, 1, []], "is_expandable": [None, 1, "one"], "blocks": [*LISTS, [1], [{}]],
    },
    "annotation": {"stage": TEXTS, "name": TEXTS, "device": [*NUMBERS, -1], "time_us": [*NUMBERS, -1]},
    "snapshot": {"segments": [*LISTS, [1], [{}]], "device_traces": [*LISTS, [1], [{}], [[1]], [[{}]]]},
}  # fmt: skip
WRONG = [(of, key, value) for of, fields in FIELDS.items() for key, values in fields.items() for value in values]


def with_field(of: str, key: str, value: Any) -> dict[str, Any]:
    """Return a snapshot in which a field of one record has a value."""
    frame = {"filename": "a.py", "line": 1, "name": "f"} | ({key: value} if of == "frame" else {})
    one = entry("alloc", BASE, 512, 1, frames=[frame]) | ({key: value} if of == "entry" else {})
    piece = block(BASE, 512) | ({key: value} if of == "block" else {})
    part = segment(BASE, MB, []) | {"blocks": [piece]} | ({key: value} if of == "segment" else {})
    note = {"stage": "START", "name": "step", "device": 0, "time_us": 1} | ({key: value} if of == "annotation" else {})
    return snapshot([one], segments=[part], external_annotations=[note]) | ({key: value} if of == "snapshot" else {})


@pytest.mark.parametrize(("of", "key", "value"), WRONG)
def test_value_of_a_wrong_type_is_refused(of: str, key: str, value: Any) -> None:
    error = refused(pickled(with_field(of, key, value)))

    expected = {"frames": "frames", "blocks": "blocks", "device_traces": "traces|entries", "segments": "segments"}
    assert any(word in error.detail for word in (key, *expected.get(key, key).split("|"), "keys"))


@pytest.mark.parametrize(("of", "key"), [("entry", "action"), ("entry", "size"), ("entry", "addr"), ("frame", "name")])
def test_missing_field_is_refused(of: str, key: str) -> None:
    content = with_field(of, "unknown", 1)
    record = content["device_traces"][0][0]
    del (record["frames"][0] if of == "frame" else record)[key]

    error = refused(pickled(content))

    assert "missing" in error.detail or "other types" in error.detail


HEAD = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94"
ATTACKS = {
    "long integer of ten bytes": (HEAD + b"\x8a\x0a" + bytes(10), "more than 64 bits"),
    "integer of nine bytes beyond 64 bits": (HEAD + b"\x8a\x09" + b"\xff" * 9, "more than 64 bits"),
    "string of 4 GiB": (HEAD + b"X\xff\xff\xff\xff", "string of more than"),
    "memo that is not filled": (HEAD + b"h\x63", "memo"),
    "far place of the memo": (HEAD + b"]r\xff\xff\xff\x7f", "memo"),
    "far place in the memo to read": (HEAD + b"j\xff\xff\xff\xff", "memo"),
    "memo of nothing": (b"\x80\x04\x94", "more values than there are"),
    "deep marks": (HEAD + b"(" * 100_000, "more than 64 levels"),
    "deep lists": (HEAD + b"]" * 300_000 + b"u.", "key without a value|neither a string"),
    "list in itself": (HEAD + b"]\x94h\x04a", "into itself"),
    "dictionary in itself": (b"\x80\x04}\x94\x8c\x01a\x94h\x00s", "into itself"),
    "lists in each other": (HEAD + b"(]\x94]\x94h\x04ah\x04h\x05a", "already complete"),
    "list that changes after it was used": (HEAD + b"(]\x94]\x94h\x04ah\x04]a", "already complete"),
    "append to a number": (HEAD + b"K\x01K\x02a", "not a list"),
    "append to a dictionary": (HEAD + b"}K\x02a", "not a list"),
    "items of a list": (HEAD + b"](\x8c\x01aK\x01u", "not a dictionary"),
    "items of a number": (HEAD + b"K\x01\x8c\x01aK\x01s", "not a dictionary"),
    "key without a value": (HEAD + b"}(\x8c\x01au", "key without a value"),
    "key that is a list": (HEAD + b"}(]K\x01u", "neither a string nor an integer"),
    "key that is None": (HEAD + b"}NK\x01s", "neither a string nor an integer"),
    "the same known key twice": (HEAD + b"}(\x8c\x04sizeK\x01\x8c\x04sizeK\x02u", "`size` twice"),
    "entry with a key twice": (HEAD + b"}(\x8c\x06actionK\x01\x8c\x06actionK\x02u", "`action` twice"),
    "entry that changes": (
        HEAD + b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01u\x8c\x04sizeK\x09s",
        "already complete",
    ),
    "appends without a mark": (b"\x80\x04]e", "no MARK"),
    "items without a mark": (b"\x80\x04}u", "no MARK"),
    "appends to nothing": (b"\x80\x04(e", "more values than there are"),
    "items across a mark": (HEAD + b"](K\x01a", "more values than there are"),
    "tuple of too few": (HEAD[:5] + b"(K\x01\x87", "more values than there are"),
    "end with values left": (HEAD + b"K\x01.", "before all values"),
    "end of nothing": (b"\x80\x04.", "before all values"),
    "a number": (b"\x80\x04K\x01.", "not a memory snapshot"),
    "an empty dictionary": (b"\x80\x04}.", "not a memory snapshot"),
    "a list of segments": (b"\x80\x04].", "before 2.0"),
    "root key twice": (HEAD + b"]\x8c\x08segments]u.", "`segments` twice"),
    "frames beyond the limit": (
        HEAD + b"}(\x8c\x08filename\x8c\x01a\x8c\x04name\x8c\x01bu\x94"
        b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01\x8c\x06frames](" + b"h\x04" * 5000 + b"eu",
        "more than 4096 frames",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_refused_with_what_and_where(attack: str) -> None:
    content, reason = ATTACKS[attack]

    error = refused(content)

    assert any(part in error.detail for part in reason.split("|"))


@pytest.mark.parametrize("what", ["traces", "entries", "blocks"])
def test_shared_part_is_refused(what: str) -> None:
    one, piece = entry("alloc", BASE, 512, 1), block(BASE, 512)
    trace = [one]
    content = {
        "traces": snapshot(segments=[]) | {"device_traces": [trace, trace]},
        "entries": snapshot([one], [one]),
        "blocks": snapshot([one], segments=[segment(BASE, MB, [piece]), segment(BASE, MB, [piece])]),
    }[what]

    assert "twice" in refused(pickled(content)).detail or "two" in refused(pickled(content)).detail


def test_lists_that_share_lists_do_not_expand() -> None:
    bomb: list[Any] = ["lol"]
    for _ in range(60):
        bomb = [bomb] * 10
    reader, _ = unpickled([pickled(snapshot([entry("alloc", BASE, 5, 1)], bomb=bomb, allocator_settings=bomb))])

    read = contents_of(reader)

    assert len(read.traces[0].actions) == 1
    assert reader.tables.state[layout.CELLS] < 1000


def test_settings_that_share_lists_are_cut() -> None:
    bomb: Any = "lol"
    for _ in range(60):
        bomb = {"a": bomb, "b": bomb}
    reader, _ = unpickled([pickled(snapshot([entry("alloc", BASE, 5, 1)], allocator_settings=bomb))])

    assert len(str(contents_of(reader).settings)) < 50_000


@needs_shared
@pytest.mark.parametrize("path", sorted(INPUTS.glob("mem_bad_*.pickle")), ids=lambda path: path.stem)
def test_bad_fixture_is_refused(path: Path, tmp_path: Path) -> None:
    with path.open("rb") as file:
        reader, _ = open_trace(file, tmp_path)
        with pytest.raises(IngestError):
            list(reader.batches())


def test_pieces_of_any_size_give_the_same_result() -> None:
    whole, _ = unpickled([PLAIN])
    pieces = Unpickler()
    for at in range(len(PLAIN)):
        pieces.read(PLAIN[at : at + 1])

    for name in ("state", "entry_addresses", "entry_stacks", "frames", "blocks", "segments", "annotations"):
        ours, theirs = getattr(whole.tables, name), getattr(pieces.tables, name)
        assert (ours[:20] == theirs[:20]).all()


def test_pickle_of_another_kind_is_refused_by_its_content(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="not a memory snapshot"):
        list(open_trace(BufferedReader(BytesIO(pickle.dumps({"weights": [1.5]}))), tmp_path)[0].batches())

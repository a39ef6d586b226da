"""The reader of execution traces: the operators of a capture with the shapes of their inputs, but without times.

`torch.profiler.ExecutionTraceObserver` writes them. Version 1.0.1 has flat keys; versions of Chakra have ``inputs``,
``ctrl_deps`` and ``attrs``: https://github.com/mlcommons/chakra.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ijson
import numpy as np
import pyarrow as pa

from service.streaming.codec import decompressed
from service.trace.errors import BadCompression, BadExecutionTrace, Truncated

NODES_MAX = 1 << 24
"""Maximum number of nodes; those of larger files take more than 1 GB."""
NODE_SIZE_MAX = 64 << 20
"""Maximum bytes of the text of a node."""
DEPTH_MAX = 64
"""Maximum depth of brackets; nodes have about eight."""
TEXT_MAX = 256 << 20
"""Maximum characters of all distinct names and shapes."""

_SCHEMA = re.compile(rb'\A\s*\{\s*"schema"\s*:\s*"([^"]{0,100})"')
_FLAT = re.compile(r"1\.0\.\d+")
_CHAKRA = re.compile(r"1\.\d+\.\d+-chakra\.0\.0\.\d+")
_ID_END = 1 << 63
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_DEPTH_STEPS = np.zeros(256, np.int8)
_DEPTH_STEPS[[*b"[{"]], _DEPTH_STEPS[[*b"]}"]] = 1, -1
"""The change of the depth by each byte outside of strings."""


@dataclass(frozen=True)
class ExecutionTraceFile:
    """A file that may describe a trace.

    Attributes:
        path: its path.
        name: its name, for messages.
    """

    path: Path
    name: str


@dataclass(frozen=True)
class ExecutionTrace:
    """An execution trace.

    Attributes:
        schema: its version.
        nodes: number of its nodes.
        functions: the nodes of recorded functions: ``rf_id``, ``name``, and the ``shapes`` of the inputs as Kineto
            writes them, null for a function without inputs.
    """

    schema: str
    nodes: int
    functions: pa.Table


def read_execution_trace(path: Path) -> ExecutionTrace:
    """Read an execution trace: plain, gzip or zstd.

    Raises:
        BadExecutionTrace: it is damaged, too large or of an unknown version, an id occurs twice, or the parents of a
            node form a cycle.
    """
    with path.open("rb") as file:
        pieces = decompressed(file)
        try:
            start = next(pieces, b"")
            schema = _schema_of(start)
            nodes = _Nodes(is_flat=_FLAT.fullmatch(schema) is not None)
            for node in _node_objects(_joined(start, pieces)):
                nodes.add(node)
        except (BadCompression, Truncated) as error:
            raise BadExecutionTrace(f"The execution trace is damaged. {error.detail}") from error
    nodes.check()
    return ExecutionTrace(schema, len(nodes.ids), nodes.functions())


def _joined(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _schema_of(start: bytes) -> str:
    """Return the version of the schema, which is the first member; raises `BadExecutionTrace` if it is not known."""
    match = _SCHEMA.match(start)
    schema = match[1].decode(errors="replace") if match else ""
    if not _FLAT.fullmatch(schema) and not _CHAKRA.fullmatch(schema):
        found = f"its schema is {schema!r}" if match else "it does not begin with its schema"
        raise BadExecutionTrace(f"The execution trace can't be read: {found}, and not 1.0.x or 1.x.x-chakra.0.0.x.")
    return schema


def _node_objects(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the nodes, in bounded memory.

    Raises:
        BadExecutionTrace: the file is no valid JSON, or a node is too long or no object.
    """
    arrived = ijson.sendable_list()
    parser = ijson.items_coro(arrived, "nodes.item")
    nesting = _Nesting()
    offset = node_end = 0
    try:
        for piece in pieces:
            nesting.check(piece)
            parser.send(piece)
            offset += len(piece)
            if arrived:
                node_end = offset
            elif offset - node_end > NODE_SIZE_MAX:
                raise BadExecutionTrace(
                    f"The node after byte {node_end} of the execution trace is longer than {NODE_SIZE_MAX} bytes."
                )
            for node in arrived:
                if not isinstance(node, dict):
                    raise BadExecutionTrace(f"A node before byte {offset} of the execution trace is not an object.")
                yield node
            arrived.clear()
        parser.close()
    except ijson.JSONError as error:
        reason = str(error).split("\n", 1)[0]
        raise BadExecutionTrace(f"The execution trace is no valid JSON after byte {node_end}: {reason}.") from error
    yield from arrived


class _Nesting:
    """The depth of brackets, which is checked before the parser gets them: its memory grows by the depth's square."""

    def __init__(self) -> None:
        self._depth = 0
        self._cut_string = b""

    def check(self, piece: bytes) -> None:
        """Take the next piece of the JSON; raises `BadExecutionTrace` if it is nested deeper than `DEPTH_MAX`."""
        outside, quote, rest = _STRING.sub(b"", self._cut_string + piece).partition(b'"')
        self._cut_string = quote + rest
        depths = self._depth + np.cumsum(_DEPTH_STEPS[np.frombuffer(outside, np.uint8)], dtype=np.int64)
        if not len(depths):
            return
        if depths.max() > DEPTH_MAX:
            raise BadExecutionTrace(f"The execution trace is nested deeper than {DEPTH_MAX} levels.")
        self._depth = int(depths[-1])


@dataclass
class _Texts:
    """Distinct texts, and the code of each."""

    codes: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def code(self, text: str) -> int:
        code = self.codes.setdefault(text, len(self.codes))
        if code == len(self.codes) - 1:
            self.size += len(text)
        return code


class _Nodes:
    """The nodes that were read, as columns.

    Args:
        is_flat: whether nodes have the keys of version 1.0.x, rather than those of Chakra.
    """

    def __init__(self, *, is_flat: bool) -> None:
        self._is_flat = is_flat
        self.ids, self._parents, self._rf_ids = array("q"), array("q"), array("q")
        self._names, self._shapes = array("i"), array("i")
        self._name_texts, self._shape_texts = _Texts(), _Texts()

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a node; raises `BadExecutionTrace` if it is malformed, or one too many."""
        if len(self.ids) == NODES_MAX:
            raise BadExecutionTrace(f"The execution trace has more than {NODES_MAX:,} nodes.")
        node_id = _whole(node.get("id"), "a node", "id")
        where = f"the node {node_id}"
        if self._is_flat:
            parent, rf_id = node.get("parent"), node.get("rf_id", 0)
            shapes, types = node.get("input_shapes"), node.get("input_types")
        else:
            parent, rf_id, inputs = node.get("ctrl_deps"), _attribute(node, "rf_id"), node.get("inputs")
            shapes, types = (inputs.get("shapes"), inputs.get("types")) if isinstance(inputs, dict) else (None, None)
        name = node.get("name")
        if not isinstance(name, str):
            raise BadExecutionTrace(f"In the execution trace, the name of {where} is not text.")
        self.ids.append(node_id)
        self._parents.append(_whole(parent, where, "parent"))
        self._rf_ids.append(_whole(rf_id, where, "rf_id"))
        self._names.append(self._name_texts.code(name))
        self._shapes.append(self._shape_texts.code(_shapes_text(shapes, types, where)))
        if self._name_texts.size + self._shape_texts.size > TEXT_MAX:
            raise BadExecutionTrace(f"The execution trace has more than {TEXT_MAX:,} characters of names and shapes.")

    def check(self) -> None:
        """Raise `BadExecutionTrace` if an id occurs twice, or if the parents of a node form a cycle."""
        ids, parents, rf_ids = (_as_array(column) for column in (self.ids, self._parents, self._rf_ids))
        order = np.argsort(ids, kind="stable")
        ids, parents = ids[order], parents[order]
        _check_distinct(ids, "id")
        _check_distinct(np.sort(rf_ids[rf_ids != 0]), "rf_id")
        count = len(ids)
        places = np.searchsorted(ids, parents)
        is_root = (ids[np.minimum(places, count - 1)] != parents) | (parents == ids) if count else places > 0
        above = np.append(np.where(is_root, count, places), count)  # the last entry stands for no parent
        for _ in range(count.bit_length()):  # each round doubles the number of generations
            above = above[above]
        if (cycle := np.flatnonzero(above != count)).size:
            raise BadExecutionTrace(
                f"In the execution trace, the parents of the node {ids[cycle[0]]} form a cycle, or lead to one."
            )

    def functions(self) -> pa.Table:
        """Return the nodes of recorded functions; see `ExecutionTrace`."""
        rf_ids = _as_array(self._rf_ids)
        recorded = pa.array(np.flatnonzero(rf_ids != 0))
        columns = {
            "rf_id": pa.array(rf_ids),
            "name": _texts_of(self._names, self._name_texts),
            "shapes": _texts_of(self._shapes, self._shape_texts),
        }
        return pa.table({name: column.take(recorded) for name, column in columns.items()})


def _texts_of(codes: "array[int]", texts: _Texts) -> pa.DictionaryArray:
    """Return a column of texts; an empty text is null."""
    values = pa.array(texts.codes, pa.string())
    empty = texts.codes.get("", -1)
    indices = np.frombuffer(codes, np.int32) if codes else np.empty(0, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices == empty), values)


def _as_array(column: "array[int]") -> Any:
    return np.frombuffer(column, np.int64) if column else np.empty(0, np.int64)


def _check_distinct(ascending: Any, name: str) -> None:
    if (twice := np.flatnonzero(ascending[1:] == ascending[:-1])).size:
        raise BadExecutionTrace(f"In the execution trace, two nodes have the {name} {ascending[twice[0]]}.")


def _whole(value: object, where: str, name: str) -> int:
    """Return an id; raises `BadExecutionTrace` if it is no integer from 0 to 2^63 - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _ID_END:
        found = str(value)[:60] if isinstance(value, int) else f"a {type(value).__name__}"
        raise BadExecutionTrace(
            f"In the execution trace, the {name} of {where} is {found}, and no integer from 0 to 2^63 - 1."
        )
    return value


def _attribute(node: Mapping[str, Any], name: str) -> object:
    """Return the value of a node's attribute; 0 if it has none of this name."""
    attributes = node.get("attrs")
    if not isinstance(attributes, list):
        return 0
    return next(
        (entry.get("value") for entry in attributes if isinstance(entry, dict) and entry.get("name") == name), 0
    )


def _shapes_text(shapes: object, types: object, where: str) -> str:
    """Return the shapes of inputs as Kineto writes them: sizes of tensors, and `[]` for each other input.

    The text is empty if there are no inputs.
    """
    if not shapes:
        return ""
    if not isinstance(shapes, list) or not isinstance(types, list) or len(types) != len(shapes):
        raise BadExecutionTrace(f"In the execution trace, {where} has not as many types of inputs as shapes.")
    return json.dumps([_sizes(shape, type_, where) for shape, type_ in zip(shapes, types, strict=True)])


def _sizes(shape: object, type_: object, where: str) -> list[Any]:
    kind = str(type_)
    if kind.startswith("GenericList[Tensor") and isinstance(shape, list):
        return [_sizes(inner, "Tensor", where) for inner in shape]
    if not kind.startswith("Tensor"):
        return []
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise BadExecutionTrace(f"In the execution trace, the shape of a tensor of {where} is not a list of integers.")
    return shape

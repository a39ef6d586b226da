"""Execution traces are read in bounded memory; those that are damaged, or of an unknown version, are refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats import execution_trace as module
from service.formats.execution_trace import ExecutionTrace, read_execution_trace
from service.trace.errors import BadExecutionTrace
from tests.conftest import needs_shared
from tests.formats.test_unread import INPUTS

Json = dict[str, Any]
CHAKRA = "1.1.0-chakra.0.0.4"


def node(node_id: int, parent: int = 1, rf_id: int = 0, name: str = "aten::mm", **fields: Any) -> Json:
    """Return a node of version 1.0.1."""
    return {"name": name, "id": node_id, "rf_id": rf_id, "parent": parent, **fields}


def chakra(node_id: int, parent: int = 1, rf_id: int = 0, shapes: Any = (), types: Any = ()) -> Json:
    """Return a node of Chakra."""
    attributes = [{"name": "rf_id", "type": "uint64", "value": rf_id}]
    inputs = {"values": [], "shapes": shapes, "types": types}
    return {"id": node_id, "name": "aten::mm", "ctrl_deps": parent, "inputs": inputs, "attrs": attributes}


ROOT = node(1, name="[pytorch|profiler|execution_trace|process]")


def text_of(*nodes: Json, schema: str = "1.0.1") -> str:
    return json.dumps({"schema": schema, "pid": 7, "nodes": [*nodes]})


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str | bytes], ExecutionTrace]:
    def read_text(content: str | bytes) -> ExecutionTrace:
        path = tmp_path / "et.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_execution_trace(path)

    return read_text


Read = Callable[[str | bytes], ExecutionTrace]


@needs_shared
@pytest.mark.parametrize("name", ["et_simple_add", "et_chakra_schema_trimmed"])
def test_real_execution_traces_equal_their_goldens(name: str) -> None:
    golden = json.loads((INPUTS / f"{name}.golden.json").read_text())
    trace = read_execution_trace(INPUTS / f"{name}.json")
    assert (trace.schema, trace.nodes) == (golden["schema"], golden["nodes"])
    shapes = [shape for shape in trace.functions["shapes"].to_pylist() if shape]
    assert len(shapes) == golden.get("nodes_with_shapes", golden.get("ops_that_gain_shapes"))


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_shapes_are_those_that_kineto_writes(compress: Callable[[bytes], bytes], read: Read) -> None:
    inputs: dict[str, Any] = {
        "input_shapes": [[2, 3], [[2], [4, 5]], [], [[], []], []],
        "input_types": ["Tensor(float)", "GenericList[Tensor(int),Tensor(int)]", "Int", "GenericList[Int,Int]", "None"],
    }
    flat = read(compress(text_of(ROOT, node(2, rf_id=9, **inputs), node(3, rf_id=8, input_shapes=[])).encode()))
    assert flat.functions.to_pylist() == [
        {"rf_id": 9, "name": "aten::mm", "shapes": "[[2, 3], [[2], [4, 5]], [], [], []]"},
        {"rf_id": 8, "name": "aten::mm", "shapes": None},
    ]
    nodes = chakra(1), chakra(2, rf_id=9, shapes=inputs["input_shapes"], types=inputs["input_types"])
    assert read(compress(text_of(*nodes, schema=CHAKRA).encode())).functions.to_pylist() == [
        flat.functions.to_pylist()[0]
    ]


def test_brackets_in_strings_are_no_levels(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEPTH_MAX", 5)
    names = ["[" * 9, '\\"[[[[[[', "[" * (1 << 20), "\\\\", "{"]  # the third is cut between pieces
    trace = read(text_of(*(node(number, rf_id=number + 1, name=name) for number, name in enumerate(names))))
    assert trace.functions["name"].to_pylist() == names


def test_parents_may_follow_their_children_and_may_be_missing(read: Read) -> None:
    assert read(text_of(node(3, parent=2), node(2, parent=77), node(5, parent=3), ROOT)).nodes == 4
    assert read(text_of()).nodes == 0


DEEP = "[" * 100_000 + "]" * 100_000
BAD = {
    text_of(schema="2.0.0"): r"schema is '2\.0\.0', and not 1\.0\.x",
    text_of(schema="1.1.0-chakra.0.1.0"): "schema is",
    '{"nodes": []}': "does not begin with its schema",
    "": "does not begin with its schema",
    text_of(ROOT)[:-10]: "no valid JSON",
    text_of(ROOT).replace('"id": 1', '"id": 1 1'): "no valid JSON",
    text_of(ROOT, node(2), node(2)): "two nodes have the id 2",
    text_of(ROOT, node(2, rf_id=7), node(3, rf_id=7)): "two nodes have the rf_id 7",
    text_of(ROOT, node(2, parent=3), node(3, parent=4), node(4, parent=2)): "node 2 form a cycle",
    text_of(ROOT, node(2, parent=3), node(3, parent=3), node(4, parent=5), node(5, parent=4)): "node 4 form a cycle",
    text_of(node(1 << 63)): "id of a node is 9223372036854775808, and no integer from 0",
    text_of(node(-1)): "id of a node is -1",
    text_of(node(2, rf_id=1 << 64)): "rf_id of the node 2 is 18446744073709551616",
    text_of(node(2, parent="1")): "parent of the node 2 is a str",  # type: ignore[arg-type]
    text_of(node(True)): "id of a node is True",
    text_of({"id": 1}): "name of the node 1 is not text",
    '{"schema": "1.0.1", "nodes": [7]}': "is not an object",
    f'{{"schema": "1.0.1", "nodes": [{{"id": {DEEP}}}]}}': "nested deeper than 64 levels",
    text_of({"id": []}): "id of a node is a list",
    text_of(node(2, input_shapes=[[1]], input_types=[])): "node 2 has not as many types",
    text_of(node(2, input_shapes=[["x"]], input_types=["Tensor(float)"])): "not a list of integers",
    text_of(node(2, input_shapes=[["x"]], input_types=["GenericList[Tensor(float)]"])): "not a list of integers",
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), BAD.items(), ids=BAD.values())
def test_bad_execution_traces_are_refused_with_the_place(text: str, reason: str, read: Read) -> None:
    with pytest.raises(BadExecutionTrace, match=reason) as refusal:
        read(text)
    assert refusal.value.detail.endswith(".")


def test_damaged_compression_is_refused(read: Read) -> None:
    packed = gzip.compress(text_of(ROOT, *(node(number) for number in range(2, 5000))).encode())
    with pytest.raises(BadExecutionTrace, match="is damaged"):
        read(packed[: len(packed) // 2])


@pytest.mark.parametrize(
    ("bound", "reason"), [("NODES_MAX", "more than 2 nodes"), ("TEXT_MAX", "more than 2 characters")]
)
def test_sizes_are_bounded(bound: str, reason: str, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, bound, 2)
    with pytest.raises(BadExecutionTrace, match=reason):
        read(text_of(ROOT, node(2), node(3)))


def test_node_of_endless_text_is_refused_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODE_SIZE_MAX", 4 << 20)
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"schema": "1.0.1", "nodes": [{"id": 1, "inputs": [')
        for _ in range(64):
            file.write(b"0," * (1 << 19))
    with pytest.raises(BadExecutionTrace, match="is longer than 4194304 bytes"):
        read_execution_trace(path)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_cycles_are_those_that_a_walk_finds(parents: list[int]) -> None:
    def leads_to_a_cycle(start: int) -> bool:
        seen: set[int] = set()
        at = start
        while at < len(parents) and parents[at] != at:
            if at in seen:
                return True
            seen.add(at)
            at = parents[at]
        return False

    nodes = module._Nodes(is_flat=True)
    for number, parent in enumerate(parents):
        nodes.add(node(number, parent=parent))
    if any(map(leads_to_a_cycle, range(len(parents)))):
        with pytest.raises(BadExecutionTrace, match="form a cycle"):
            nodes.check()
    else:
        nodes.check()

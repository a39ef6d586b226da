"""The file of the arguments of process groups' annotations has what the events have, and is done without if need be."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.analysis.facts.collective_args import collective_args
from service.analysis.facts.communications import communications_of
from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import Scope, scope_of
from service.jobs.ingest import ingest
from service.store.folder import COLLECTIVES, size_of
from service.trace.summary import Summary

Read = tuple[Path, Summary]


def annotation(at: int, name: str, args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 1, "args": args}


EVENTS = [
    annotation(1, "gloo:all_reduce", {"Input Dims": [[4]], "Input type": ["float"]}),
    annotation(2, "forward", {"Input Dims": [[5]], "Input type": ["float"]}),
    annotation(3, "gloo:broadcast", {"Input Dims": [[6]], "Input type": ["float"]}),
]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    with path.open("rb") as file:
        return tmp_path / "columns", ingest(file, tmp_path / "columns", path.name, lambda _: None)


def elements_of(read: Read) -> list[int | None]:
    with closing(database_of(read)) as database, scope_of(database) as scope:
        elements: list[int | None] = communications_of(scope, "exact")["in_elements"].to_pylist()
        return elements


def database_of(read: Read) -> RankDatabase:
    columns, summary = read
    return RankDatabase(columns, summary, None, spill=columns / "spill", threads=1)


def test_ingest_writes_the_arguments_of_collectives_alone(read: Read) -> None:
    table = pq.read_table(read[0] / COLLECTIVES)
    assert [json.loads(args)["Input Dims"] for args in table["args"].to_pylist()] == [[[4]], [[6]]]
    assert table["row"].to_pylist() == [0, 2]


def test_arguments_of_the_file_are_those_of_the_events(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(database_of(read)) as database, scope_of(database) as scope:
        of_events = scope.args_at([0, 2])
        monkeypatch.setattr(Scope, "args_at", lambda *_: [])
        assert collective_args(scope, [0, 2]) == of_events
    assert elements_of(read) == [4, 6]


def _remove(path: Path) -> None:
    path.unlink()


def _damage(path: Path) -> None:
    path.write_bytes(b"PAR1")


def _age(path: Path) -> None:
    pq.write_table(pa.table({"row": [0, 2], "args": ["{}", "{}"]}), path)


@pytest.mark.parametrize("spoil", [_remove, _damage, _age])
def test_columns_without_a_sound_file_have_the_same_collectives(read: Read, spoil: Any) -> None:
    size = size_of(read[0])
    spoil(read[0] / COLLECTIVES)
    assert elements_of(read) == [4, 6]
    assert size_of(read[0]) == size


def test_trace_without_collectives_has_no_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS[1:2]}))
    with path.open("rb") as file:
        ingest(file, tmp_path / "columns", path.name, lambda _: None)
    assert not (tmp_path / "columns" / COLLECTIVES).exists()

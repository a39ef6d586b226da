"""A trace that is written as Perfetto's protobuf has the same events when it is read again."""

import json
from pathlib import Path
from random import Random

import pytest

from tests.conftest import DATA, SHARED
from tests.cutting.test_cut import ingested, plain
from tests.rendering.hostile import document
from tests.rendering.pftrace.reading import comparable, read_back, rows_of

REAL = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.glob("*.pt.trace.json.gz")])


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_real_traces_come_back_whole(path: Path, tmp_path: Path) -> None:
    trace = ingested(plain(path), tmp_path / "trace")

    found = read_back(trace)

    assert comparable(found.rows) == comparable(rows_of(trace.columns))
    around = json.loads((trace.columns / "envelope.json").read_text())
    assert found.members == around
    assert (found.refused, found.notes) == (0, {})


@pytest.mark.parametrize("seed", range(40))
def test_hostile_documents_come_back_whole(seed: int, tmp_path: Path) -> None:
    trace = ingested(document(Random(seed)).encode("utf-8", "surrogatepass"), tmp_path / "trace")

    found = read_back(trace)

    assert comparable(found.rows) == comparable(rows_of(trace.columns))

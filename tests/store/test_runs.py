"""Runs keep little in memory of what has been read from them."""

from pathlib import Path

import pyarrow as pa
import pytest

from service.store import runs
from service.store.runs import Run
from service.streaming.scan.events import ELEMENT_OR_CLOSE
from service.streaming.scan.reader import Reader

BATCH_ROWS = 100


@pytest.mark.parametrize("batches", range(1, 5))
def test_run_without_further_timed_events_keeps_only_the_others_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(runs, "_BATCH_ROWS", BATCH_ROWS)
    timed = [f'{{"ts":{time},"args":{{"text":"{"x" * 1000}"}}}}' for time in range(batches * BATCH_ROWS - 1)]
    text = ",".join([*timed, '{"ph":"M"}'])
    (batch,) = Reader().read(text.encode() + b"]", 0, ELEMENT_OR_CLOSE, last=True).batches
    run = Run([batch], tmp_path / "run")
    del batch
    before = pa.total_allocated_bytes()

    read = sum(map(len, run.before(10**12)))
    kept = pa.total_allocated_bytes() - before

    assert read == len(timed)
    assert [*tmp_path.iterdir()] == []  # its files are open, and leave their room when all is read
    assert kept < BATCH_ROWS * 100  # a tenth of the texts of one batch
    assert sum(map(len, run.before(None))) == 1

"""Long lists of a summary lie compressed next to the columns; those of earlier versions are read, too."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from service.store.folder import LISTS, PLAIN_LISTS, size_of
from service.store.lists import LISTED_MAX, whole_summary, with_limited_lists
from service.trace.errors import ExportFailed
from service.trace.summary import Summary

STEPS: Any = [
    {"number": number, "name": f"ProfilerStep#{number}", "start_ns": number, "end_ns": number + 1, "pid": 1, "tid": 1}
    for number in range(LISTED_MAX + 1)
]


def test_lists_that_were_cut_are_read_from_their_file(tmp_path: Path) -> None:
    limited = with_limited_lists(Summary(steps=STEPS), tmp_path)
    assert (len(limited.steps), limited.totals) == (LISTED_MAX, {"steps": LISTED_MAX + 1})
    assert (tmp_path / LISTS).stat().st_size < len(orjson.dumps(STEPS)) / 5
    assert whole_summary(limited, tmp_path) == Summary(steps=STEPS)


def test_lists_of_earlier_versions_are_read(tmp_path: Path) -> None:
    limited = with_limited_lists(Summary(steps=STEPS), tmp_path)
    (tmp_path / LISTS).unlink()
    (tmp_path / PLAIN_LISTS).write_bytes(orjson.dumps({"steps": STEPS}))
    assert whole_summary(limited, tmp_path) == Summary(steps=STEPS)
    for name in ("events.parquet", "envelope.json"):
        (tmp_path / name).touch()
    assert size_of(tmp_path) == (tmp_path / PLAIN_LISTS).stat().st_size


@pytest.mark.parametrize("damage", [b"", b"no zstd"])
def test_damaged_lists_are_named(tmp_path: Path, damage: bytes) -> None:
    limited = with_limited_lists(Summary(steps=STEPS), tmp_path)
    (tmp_path / LISTS).write_bytes(damage)
    with pytest.raises(ExportFailed, match=f"The trace's {LISTS} can't be read"):
        whole_summary(limited, tmp_path)

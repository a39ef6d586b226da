"""The audit log has one line for each change, even if texts have line breaks, in files of bounded size."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from service.store import audit
from service.store.audit import Audit, note


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_note_is_one_line_for_any_text(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with closing(Audit(path, rotate=True)):
        note("ci", did="upload", address="::1", trace='a"\n{"who": "root"}\u2028', job=None, status=201)
    [line] = lines(path)
    assert line.pop("at")
    assert line == {
        "who": "ci", "did": "upload", "address": "::1", "trace": 'a"\n{"who": "root"}\u2028', "status": 201,
    }  # fmt: skip
    assert path.stat().st_mode & 0o077 == 0


def test_earlier_notes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for actor in ("a", "b"):
        with closing(Audit(path, rotate=False)):
            note(actor, did="delete")
    note("nobody", did="listens")
    assert [line["who"] for line in lines(path)] == ["a", "b"]


def test_size_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SIZE_MAX", 1000)
    with closing(Audit(tmp_path / "audit.log", rotate=True)):
        for number in range(100):
            note("ci", did=f"delete {number}")
    files = list(tmp_path.iterdir())
    assert len(files) == 1 + audit.KEPT
    assert max(file.stat().st_size for file in files) <= 1000
    assert lines(tmp_path / "audit.log")[-1]["did"] == "delete 99"

"""Files to import are found below the roots, by file, folder or pattern; links can't lead out of the roots."""

import os
import socket
from pathlib import Path

import pytest

from service.store.roots import ImportCandidate, Roots
from service.trace.errors import ImportRefused, NothingToImport


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "runs"
    for name in ("a.json", "deep/b.json.gz", "deep/er/c.pt.trace.json", "deep/notes.txt", "deep/d.json.tmp", ".h.json"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "outside.json").write_text("{}")
    return folder


@pytest.fixture
def roots(root: Path) -> Roots:
    return Roots([root], excluding=root.parent / "data")


def names(root: Path, candidates: list[ImportCandidate]) -> list[str]:
    return [str(Path(file.key).relative_to(root)) for file in candidates if not file.reason]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("a.json", ["a.json"]),
        (".", ["a.json", "deep/b.json.gz", "deep/er/c.pt.trace.json"]),
        ("deep", ["deep/b.json.gz", "deep/er/c.pt.trace.json"]),
        ("*.json", ["a.json", ".h.json"]),
        ("deep/*", ["deep/b.json.gz", "deep/notes.txt"]),
        ("**/*.json", [".h.json", "a.json", "deep/er/c.pt.trace.json"]),
        ("**", [".h.json", "a.json", "deep/b.json.gz", "deep/er/c.pt.trace.json", "deep/notes.txt"]),
        ("d??p/**/c.*", ["deep/er/c.pt.trace.json"]),
        ("deep/[ab].json.gz", ["deep/b.json.gz"]),
    ],
)
def test_path_may_be_file_folder_or_pattern(roots: Roots, root: Path, requested: str, expected: list[str]) -> None:
    assert sorted(names(root, list(roots.find(requested)))) == sorted(expected)
    assert sorted(names(root, list(roots.find(str(root / requested))))) == sorted(expected)


def test_other_files_of_a_folder_are_reported_with_the_reason(roots: Roots, root: Path) -> None:
    reasons = {str(Path(file.key).relative_to(root)): file.reason for file in roots.find(".") if file.reason}

    assert reasons.keys() == {"deep/notes.txt", "deep/d.json.tmp", ".h.json"}
    assert "named like a trace" in str(reasons["deep/notes.txt"])
    assert "still being written" in str(reasons["deep/d.json.tmp"])


def test_a_name_may_look_like_a_pattern(roots: Roots, root: Path) -> None:
    (root / "run[1].json").write_text("{}")

    assert names(root, list(roots.find("run[1].json"))) == ["run[1].json"]


@pytest.mark.parametrize(
    "path", ["../outside.json", "deep/../a.json", "/etc/passwd", "/", "", "a\0.json", "..", "{root}/../outside.json",
              "/etc/*", "{root}2/x.json"],
)  # fmt: skip
def test_path_that_leads_out_is_refused_even_if_missing(roots: Roots, root: Path, path: str) -> None:
    with pytest.raises(ImportRefused):
        list(roots.find(path.replace("{root}", str(root))))
    with pytest.raises(ImportRefused):
        roots.check(path.replace("{root}", str(root)))


def test_link_that_leads_out_is_refused_and_skipped_in_folders(roots: Roots, root: Path) -> None:
    (root / "out.json").symlink_to(root.parent / "outside.json")
    (root / "folder").symlink_to(root.parent)
    (root / "gone.json").symlink_to(root / "nowhere")
    (root / "loop.json").symlink_to(root / "loop.json")

    for requested in ("out.json", "folder", "folder/outside.json", "folder/*.json"):
        with pytest.raises(ImportRefused):
            list(roots.find(requested))
    reasons = {file.name: file.reason for file in roots.find("*.json") if file.reason}
    assert "leads out" in str(reasons["out.json"])
    assert "to nowhere" in str(reasons["gone.json"])
    assert "to nowhere" in str(reasons["loop.json"])
    assert sorted(names(root, list(roots.find("*.json")))) == [".h.json", "a.json"]
    with pytest.raises(NothingToImport):
        list(roots.find("**/outside.json"))


def test_link_within_the_roots_is_followed(roots: Roots, root: Path) -> None:
    (root / "again.json").symlink_to(root / "a.json")
    (root / "shallow").symlink_to(root / "deep" / "er")

    assert names(root, list(roots.find("again.json"))) == ["a.json"]
    assert names(root, list(roots.find("shallow"))) == ["deep/er/c.pt.trace.json"]


def test_special_file_is_refused(roots: Roots, root: Path) -> None:
    os.mkfifo(root / "pipe.json")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(root / "s.json"))
    (root / "null.json").symlink_to("/dev/null")

    for requested in ("pipe.json", "s.json", "null.json"):
        with pytest.raises(ImportRefused):
            list(roots.find(requested))
    reasons = {file.name: file.reason for file in roots.find("*.json") if file.reason}
    assert reasons.keys() == {"pipe.json", "s.json", "null.json"}


def test_the_data_folder_is_no_source_even_within_a_root(root: Path) -> None:
    (root / "data" / "originals").mkdir(parents=True)
    (root / "data" / "originals" / "x.json").write_text("{}")
    roots = Roots([root], excluding=root / "data")

    with pytest.raises(ImportRefused):
        list(roots.find("data/originals/x.json"))
    assert "data/originals/x.json" not in names(root, list(roots.find("**/*.json")))


def test_a_root_may_itself_be_a_link_and_a_path_counts_from_each(root: Path) -> None:
    (root.parent / "other").mkdir()
    (root.parent / "other" / "a.json").write_text("[]")
    (root.parent / "way").symlink_to(root.parent / "other")
    roots = Roots.of(f"{root}, {root.parent / 'way'},", excluding=root.parent / "data")

    both = [root / "a.json", root.parent / "other" / "a.json"]
    assert [file.key for file in roots.find("a.json")] == [*map(str, both)]
    assert [file.key for file in roots.find(str(root.parent / "way" / "a.json"))] == [str(both[1])]


def test_undecodable_and_overlong_names_are_handled(roots: Roots, root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9.json")).write_text("{}")

    assert sorted(file.key for file in roots.find("c*.json")) == [f"{root}/caf\\udce9.json"]
    for requested in ("x" * 300, "x/" * 2000, "[" * 300):
        with pytest.raises(NothingToImport):
            list(roots.find(requested))


def test_missing_match_is_distinguished_from_a_refusal(roots: Roots, root: Path) -> None:
    for requested in ("nothing.json", "*.zst", "deep/none/*.json"):
        with pytest.raises(NothingToImport):
            list(roots.find(requested))
    roots.check("*.zst")
    with pytest.raises(ImportRefused, match="TRACEDOCK_IMPORT_ROOTS"):
        list(Roots([], excluding=root).find("a.json"))

"""What may be imported is found below the roots, by file, folder and pattern; nothing leads out of them."""

import os
import socket
from pathlib import Path

import pytest

from service.store.roots import Found, Roots
from service.trace.errors import ImportRefused, NothingToImport


@pytest.fixture
def root(tmp_path: Path) -> Path:
    one = tmp_path.resolve() / "runs"
    for name in ("a.json", "deep/b.json.gz", "deep/er/c.pt.trace.json", "deep/notes.txt", "deep/d.json.tmp", ".h.json"):
        path = one / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "outside.json").write_text("{}")
    return one


@pytest.fixture
def roots(root: Path) -> Roots:
    return Roots([root], but=root.parent / "data")


def names(root: Path, found: list[Found]) -> list[str]:
    return [str(one.path.relative_to(root)) for one in found if not one.why]


@pytest.mark.parametrize(
    ("asked", "found"),
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
def test_a_path_means_a_file_a_folder_or_a_pattern(roots: Roots, root: Path, asked: str, found: list[str]) -> None:
    assert sorted(names(root, list(roots.find(asked)))) == sorted(found)
    assert sorted(names(root, list(roots.find(str(root / asked))))) == sorted(found)


def test_what_a_folder_has_beside_traces_is_told_with_the_reason(roots: Roots, root: Path) -> None:
    told = {str(one.path.relative_to(root)): one.why for one in roots.find(".") if one.why}

    assert told.keys() == {"deep/notes.txt", "deep/d.json.tmp", ".h.json"}
    assert "named like a trace" in str(told["deep/notes.txt"])
    assert "still being written" in str(told["deep/d.json.tmp"])


def test_a_name_may_look_like_a_pattern(roots: Roots, root: Path) -> None:
    (root / "run[1].json").write_text("{}")

    assert names(root, list(roots.find("run[1].json"))) == ["run[1].json"]


@pytest.mark.parametrize(
    "asked", ["../outside.json", "deep/../a.json", "/etc/passwd", "/", "", "a\0.json", "..", "{root}/../outside.json",
              "/etc/*", "{root}2/x.json"],
)  # fmt: skip
def test_a_path_that_leads_out_is_refused_whether_anything_is_there_or_not(
    roots: Roots, root: Path, asked: str
) -> None:
    with pytest.raises(ImportRefused):
        list(roots.find(asked.replace("{root}", str(root))))
    with pytest.raises(ImportRefused):
        roots.check(asked.replace("{root}", str(root)))


def test_a_link_that_leads_out_is_refused_and_not_taken_along(roots: Roots, root: Path) -> None:
    (root / "out.json").symlink_to(root.parent / "outside.json")
    (root / "folder").symlink_to(root.parent)
    (root / "gone.json").symlink_to(root / "nowhere")
    (root / "loop.json").symlink_to(root / "loop.json")

    for asked in ("out.json", "folder", "folder/outside.json", "folder/*.json"):
        with pytest.raises(ImportRefused):
            list(roots.find(asked))
    told = {one.path.name: one.why for one in roots.find("*.json") if one.why}
    assert "leads out" in str(told["out.json"])
    assert "to nowhere" in str(told["gone.json"])
    assert "to nowhere" in str(told["loop.json"])
    assert sorted(names(root, list(roots.find("*.json")))) == [".h.json", "a.json"]
    with pytest.raises(NothingToImport):
        list(roots.find("**/outside.json"))


def test_a_link_within_the_roots_stands_for_what_it_leads_to(roots: Roots, root: Path) -> None:
    (root / "again.json").symlink_to(root / "a.json")
    (root / "shallow").symlink_to(root / "deep" / "er")

    assert names(root, list(roots.find("again.json"))) == ["a.json"]
    assert names(root, list(roots.find("shallow"))) == ["deep/er/c.pt.trace.json"]


def test_what_is_no_plain_file_is_refused(roots: Roots, root: Path) -> None:
    os.mkfifo(root / "pipe.json")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(root / "s.json"))
    (root / "null.json").symlink_to("/dev/null")

    for asked in ("pipe.json", "s.json", "null.json"):
        with pytest.raises(ImportRefused):
            list(roots.find(asked))
    told = {one.path.name: one.why for one in roots.find("*.json") if one.why}
    assert told.keys() == {"pipe.json", "s.json", "null.json"}


def test_the_data_folder_is_no_source_even_within_a_root(root: Path) -> None:
    (root / "data" / "originals").mkdir(parents=True)
    (root / "data" / "originals" / "x.json").write_text("{}")
    roots = Roots([root], but=root / "data")

    with pytest.raises(ImportRefused):
        list(roots.find("data/originals/x.json"))
    assert "data/originals/x.json" not in names(root, list(roots.find("**/*.json")))


def test_a_root_may_itself_be_a_link_and_a_path_counts_from_each(root: Path) -> None:
    (root.parent / "other").mkdir()
    (root.parent / "other" / "a.json").write_text("[]")
    (root.parent / "way").symlink_to(root.parent / "other")
    roots = Roots.of(f"{root}, {root.parent / 'way'},", but=root.parent / "data")

    assert [one.path for one in roots.find("a.json")] == [root / "a.json", root.parent / "other" / "a.json"]
    assert [one.path for one in roots.find(str(root.parent / "way" / "a.json"))] == [root.parent / "other" / "a.json"]


def test_names_that_are_no_text_or_too_long_are_met_calmly(roots: Roots, root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9.json")).write_text("{}")

    assert sorted(one.key for one in roots.find("c*.json")) == [f"{root}/caf\\udce9.json"]
    for asked in ("x" * 300, "x/" * 2000, "[" * 300):
        with pytest.raises(NothingToImport):
            list(roots.find(asked))


def test_nothing_is_told_apart_from_refused(roots: Roots, root: Path) -> None:
    for asked in ("nothing.json", "*.zst", "deep/none/*.json"):
        with pytest.raises(NothingToImport):
            list(roots.find(asked))
    roots.check("*.zst")
    with pytest.raises(ImportRefused, match="TRACEDOCK_IMPORT_ROOTS"):
        list(Roots([], but=root).find("a.json"))

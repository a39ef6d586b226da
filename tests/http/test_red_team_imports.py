"""Attacks on imports: no file outside of the roots is read, nothing hangs, and the server still answers."""

import io
import json
import os
import socket
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server import Server
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.system

SECRET = b'{"traceEvents": [{"ph": "X", "name": "outside", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
GOOD = b'{"traceEvents": [{"ph": "X", "name": "inside", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
FINAL = {400, 403, 404, 422}


class Field:
    """A server, its import root, and a folder next to the root, which the server must not import."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.outside = base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.secret = self.outside / "secret.json"
        self.secret.write_bytes(SECRET)
        self.server = Server(base / "data", import_roots=self.root, max_upload_bytes=1 << 20).start()


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    field = Field(tmp_path_factory.mktemp("field").resolve())
    yield field
    assert field.server.stop() == 0


@pytest.fixture
def runs(field: Field, tmp_path: Path) -> Path:
    folder = field.root / tmp_path.name
    folder.mkdir()
    return folder


def attempted(server: Server, path: str, **options: object) -> tuple[int, list[dict[str, Any]]]:
    """Import a path; return the status and the ingested traces, none if the import is refused."""
    answer = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json={"path": path} | options)
    if answer.status_code != 202:
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code, []
    job = answer.json()
    assert job["state"] in ("done", "failed"), job
    ids = (job["result"] or {"traces": []})["traces"]
    return 202, [server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json() for trace_id in ids]


def names_in(server: Server, trace: dict[str, Any]) -> set[str]:
    document = server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).json()
    return {event["name"] for event in document["traceEvents"]}


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.json", "{outside}/secret.json", "{root}/../outside/secret.json", "./../outside/secret.json",
        "**/../../outside/secret.json", "{root}/**/../../outside/*.json", "../*/secret.json", "/", "/etc/passwd",
        "/proc/self/environ", "/proc/self/root{outside}/secret.json", "/proc/1/cwd", "/dev/zero", "/dev/stdin",
        "{root}/\x00", "", ".", "~/x.json", "file://{outside}/secret.json", "{outside}", "{data}/catalog.sqlite",
        "{root}x/secret.json", "x" * 5000, "a\nb.json", "\ud800.json", "{root}//../outside//secret.json",
    ],
)  # fmt: skip
def test_path_outside_the_root_is_refused(field: Field, path: str) -> None:
    path = path.format(outside=field.outside, root=field.root, data=field.server.data)
    content = json.dumps({"path": path}).encode()
    answer = field.server.api.post("/traces/import", params={"wait": PATIENCE_S}, content=content)
    result = answer.json().get("result") or {"traces": []}
    assert answer.status_code in FINAL or not result["traces"], answer.text
    assert field.server.api.get(f"{field.server.url}/healthz").status_code == 200


# -- files in the root -------------------------------------------------------------------------------------------------


def symlink(field: Field, file: Path) -> None:
    file.symlink_to(field.secret)


def relative_symlink(field: Field, file: Path) -> None:
    file.symlink_to(Path("..", "..", "outside", "secret.json"))


def chain_of_symlinks(field: Field, file: Path) -> None:
    (file.parent / "next").symlink_to(field.secret)
    file.symlink_to(file.parent / "next")


def loop_of_symlinks(_: Field, file: Path) -> None:
    file.symlink_to(file)


def through_proc(field: Field, file: Path) -> None:
    file.symlink_to(f"/proc/self/root{field.secret}")


def hard_link(field: Field, file: Path) -> None:
    file.hardlink_to(field.secret)


def symlink_to_hard_link(field: Field, file: Path) -> None:
    (file.parent / "linked.json").hardlink_to(field.secret)
    file.symlink_to(file.parent / "linked.json")


def fifo(_: Field, file: Path) -> None:
    os.mkfifo(file)


def unix_socket(_: Field, file: Path) -> None:
    here = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"/proc/self/fd/{here}/{file.name}")
    os.close(here)


def device(_: Field, file: Path) -> None:
    try:
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        file.symlink_to("/dev/zero")


def folder(_: Field, file: Path) -> None:
    file.mkdir()


def sparse(_: Field, file: Path) -> None:
    with file.open("wb") as whole:
        whole.truncate(1 << 40)


def empty(_: Field, file: Path) -> None:
    file.touch()


def to_own_data(field: Field, file: Path) -> None:
    file.symlink_to(field.server.data / "catalog.sqlite")


@pytest.mark.parametrize("mode", ["auto", "copy", "reference"])
@pytest.mark.parametrize(
    "lay",
    [
        *(
            symlink,
            relative_symlink,
            chain_of_symlinks,
            loop_of_symlinks,
            through_proc,
            hard_link,
            symlink_to_hard_link,
        ),
        *(fifo, unix_socket, device, folder, sparse, empty, to_own_data),
    ],
)
def test_files_outside_the_root_are_not_imported(
    field: Field, runs: Path, lay: Callable[[Field, Path], None], mode: str
) -> None:
    lay(field, runs / "a.json")
    for path in (runs / "a.json", runs, f"{runs}/*.json", f"{runs}/**"):
        status, traces = attempted(field.server, str(path), mode=mode)
        assert status in (202, *FINAL)
        assert traces == []


@pytest.mark.parametrize("pattern", ["", "/*.json", "/**/*.json"])
def test_symlinked_folder_is_not_followed(field: Field, runs: Path, pattern: str) -> None:
    (runs / "inner").symlink_to(field.outside)
    assert attempted(field.server, f"{runs}{pattern}")[1] == []
    assert attempted(field.server, f"{runs}/inner/secret.json") == (403, [])


@pytest.mark.parametrize("name", [b"a\nb.json", b"a\xff.json", "a\u202egpj.json".encode(), b" .json", b"a\\b.json"])
def test_file_with_an_unusual_name_is_imported_or_skipped(field: Field, runs: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(runs) + b"/" + name)).write_bytes(GOOD)
    status, traces = attempted(field.server, str(runs))
    assert status == 202
    assert all(names_in(field.server, trace) == {"inside"} for trace in traces)


def test_a_file_that_is_stored_already_may_be_imported_again(field: Field, runs: Path) -> None:
    (runs / "a.json").write_bytes(GOOD)
    mode = (runs / "a.json").stat().st_mode
    (first,) = attempted(field.server, str(runs / "a.json"), mode="link")[1]
    assert (runs / "a.json").stat().st_nlink > 1
    assert attempted(field.server, str(runs / "a.json"), mode="link")[1][0]["id"] == first["id"]
    assert attempted(field.server, str(runs / "a.json"), mode="link", name="b.json")[1][0]["state"] == "ready"
    assert (runs / "a.json").stat().st_mode == mode


# -- archives ----------------------------------------------------------------------------------------------------------


def member(name: str, content: bytes = GOOD, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[Any, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
    return info, content


@pytest.mark.parametrize(
    ("member", "count"),
    [
        (member("/etc/cron.d/a.json"), 1),
        (member("../../outside/a.json"), 1),
        (member("a.json", kind=tarfile.SYMTYPE, link="/etc/passwd"), 0),
        (member("a.json", kind=tarfile.LNKTYPE, link="../outside/secret.json"), 0),
        (member("a.json", kind=tarfile.CHRTYPE), 0),
        (member("a.json", kind=tarfile.FIFOTYPE), 0),
        (member("a.json", kind=tarfile.DIRTYPE), 0),
        (member("a.json", b" " * (2 << 20)), 0),
        (member("a\x01b.json"), 0),
        (member("x" * 3000 + ".json"), 0),
    ],
)
def test_members_of_archives_stay_inside(field: Field, runs: Path, member: tuple[Any, bytes], count: int) -> None:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member[0], io.BytesIO(member[1]))
    (runs / "a.tar").write_bytes(text.getvalue())
    before = sorted(field.outside.iterdir())
    _, traces = attempted(field.server, str(runs / "a.tar"))
    assert [names_in(field.server, trace) for trace in traces] == [{"inside"}] * count
    assert sorted(field.outside.iterdir()) == before
    assert not list((field.server.data / "incoming").iterdir())


def test_root_replaced_by_a_symlink_is_not_read(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.json").write_bytes(SECRET)
    (root / "inner").mkdir()
    server = start_server(import_roots=root / "inner")
    (root / "inner").rmdir()
    (root / "inner").symlink_to(root)
    (root / "a.json").symlink_to(outside / "a.json")
    assert attempted(server, str(root / "inner"))[1] == []


# -- files of the server itself ----------------------------------------------------------------------------------------


def test_files_of_the_server_are_private(field: Field, runs: Path) -> None:
    field.server.api.put("/traces/private.json", params={"wait": PATIENCE_S}, content=GOOD + b" " * 7)
    (runs / "a.json").write_bytes(GOOD + b" " * 9)
    (runs / "a.json").chmod(0o644)
    attempted(field.server, str(runs / "a.json"), mode="link")
    shared = {path.stat().st_ino for path in field.root.rglob("*.json") if path.exists()}
    for path in field.server.data.rglob("*"):
        status = path.stat()
        assert status.st_ino in shared or not status.st_mode & 0o077, path
    assert stat.S_IMODE((runs / "a.json").stat().st_mode) == 0o644


def test_older_data_folder_is_made_private(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.api.put("/traces/private.json", params={"wait": PATIENCE_S}, content=GOOD)
    server.kill()
    for path in server.data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    server.start()
    open_to_others = [path for path in server.data.rglob("*") if path.stat().st_mode & 0o077]
    assert [path for path in open_to_others if path.name != "lock"] == []

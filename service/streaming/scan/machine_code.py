"""The folder of the machine code: where it was installed, even read-only, else in the user's cache.

A file of machine code is found by the module that it belongs to, not by the path of that module: an environment that
is built in one place works in another. It is compiled for any processor of the platform, so that an image that is
built on one machine works on the next; measured, the reader is no faster with the builder's own instructions.
"""

import hashlib
import os
import sysconfig
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2]

COMPILE = "python -m service.jobs && python -m service.rendering"
"""The command that compiles everything ahead."""

NOT_KEPT = (
    "machine code can't be kept: each process compiles anew what it runs, which takes minutes in all. "
    f"Run `{COMPILE}` where {Path(sysconfig.get_path('data'), 'share', 'tracedock')} can be written"
)


class Folder(NamedTuple):
    """The folder that holds the machine code, and whether more can be written to it."""

    path: Path
    writable: bool


@cache
def folder() -> Folder | None:
    """The first folder that exists or can be made, or None if none can.

    Its name has a digest of numba's version and of the sources that functions elsewhere call: numba itself only sees a
    change of the file in which a function stands.
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
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()

"""The scripts and styles of the pages: their addresses, and the modules that a script imports."""

import hashlib
import posixpath
import re
from functools import cache
from pathlib import Path, PurePosixPath

from fastapi import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
STATIC_PATH = "/static"
"""Path below the application's root path at which pages expect `static_app`."""

_IMPORT = re.compile(r'^(?:import|export) (?:[^"]*? from )?"(\.{1,2}/[^"]+)";', re.MULTILINE)


@cache
def release() -> str:
    """Return a digest of all files. The pages' addresses have it, so that modules of two releases never mix."""
    digest = hashlib.sha256()
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(STATIC)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


@cache
def imported_by(script: str) -> list[str]:
    """Return the modules that a script imports, directly or not, sorted. Browsers that know them load them at once.

    Args:
        script: path of the script below `STATIC`, like the paths that are returned.
    """
    found: set[str] = set()
    unread = [script]
    while unread:
        module = PurePosixPath(unread.pop())
        for address in _IMPORT.findall((STATIC / module).read_text(encoding="utf-8")):
            path = posixpath.normpath(module.parent / address)
            if path not in found:
                found.add(path)
                unread.append(path)
    return sorted(found - {script})


def static_app() -> StaticFiles:
    """Return the app for the files, to mount at `STATIC_PATH`."""
    return _ReleasedFiles(directory=STATIC)


class _ReleasedFiles(StaticFiles):
    """Files that browsers keep below the release, and otherwise revalidate by ETag each time."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        first, _, rest = path.partition("/")
        is_released = first == release()
        response = await super().get_response(rest if is_released else path, scope)
        caching = "public, max-age=31536000, immutable" if is_released else "no-cache"
        response.headers.setdefault("Cache-Control", caching)
        return response

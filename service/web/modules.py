"""The modules that a page's script imports. Browsers that know them load them at once, not level by level."""

import re
from functools import cache
from pathlib import Path, PurePosixPath

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^(?:import|export) (?:[^"]*? from )?"(\.{1,2}/[^"]+)";', re.MULTILINE)


@cache
def imported_by(script: str) -> list[str]:
    """Return the modules that a script imports, directly or not, sorted.

    Args:
        script: path of the script below `STATIC`, like the paths that are returned.
    """
    found: set[str] = set()
    unread = [script]
    while unread:
        module = PurePosixPath(unread.pop())
        for address in _IMPORT.findall((STATIC / module).read_text(encoding="utf-8")):
            path = _normalized(module.parent / address)
            if path not in found:
                found.add(path)
                unread.append(path)
    return sorted(found - {script})


def _normalized(path: PurePosixPath) -> str:
    """Return a path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)

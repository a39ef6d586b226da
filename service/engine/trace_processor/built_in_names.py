"""The names that trace_processor itself defines, read from its program file."""

import re
from functools import lru_cache
from pathlib import Path

from service.engine.sql import PACKAGE
from service.engine.tokens import folded

_CREATED = re.compile(
    rb"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:PERFETTO\s+)?(?:TEMP(?:ORARY)?\s+)?(?:VIRTUAL\s+|UNIQUE\s+)?"
    rb"(?:TABLE|VIEW|FUNCTION|MACRO|INDEX|TRIGGER)\s+(?:IF\s+NOT\s+EXISTS\s+)?([A-Za-z_][A-Za-z0-9_$]*)",
    re.IGNORECASE,
)


def built_in_names(binary: Path) -> frozenset[str]:
    """Return the names that the standard library, the metrics and our package `torch` create.

    A name counts even before its module is included. The program has no list of the names, but contains their SQL as
    plain text.
    """
    state = binary.stat()
    return _names_in(binary, state.st_mtime_ns, state.st_size)


@lru_cache(4)
def _names_in(binary: Path, _mtime_ns: int, _size: int) -> frozenset[str]:
    files = [binary, *PACKAGE.glob("**/*.sql")]
    return frozenset(folded(name.decode()) for file in files for name in _CREATED.findall(file.read_bytes()))

"""The names of the input formats and of their files, without the readers: the server loads no compiled code."""

import re

from service.streaming.codec import Compression

FOLDERS = {
    "pickle": ("memory_snapshot",),
    "sqlite": ("nsys",),
    "pftrace": ("pftrace",),
    "json": ("memory_timeline", "chrome_json"),
}
"""The folders of the readers below `service/formats/`, by the format's name, which is also the suffix of its files.

The first reader that recognises a file reads it. Chrome JSON is the last: it also reads damaged text, which may start
with anything.
"""
NOT_KEPT = frozenset({"sqlite"})
"""The formats whose files hold secrets that the events lack: their originals are removed once they are read."""

FILE_FORMATS = tuple(f"{name}{compression}" for name in FOLDERS for compression in Compression)
"""The formats of files, such as ``json.gz``."""
SUFFIXES = tuple(f".{name}" for name in FILE_FORMATS)
"""Ends of the names of files that folders hand over."""
NAME_MAX_BYTES = 255
"""Largest size of a file name in UTF-8, as most file systems have it."""
_ENDS = re.compile(rf"(?:\.(?:{'|'.join([*FOLDERS, 'gz', 'zst', 'tmp'])}))+$", re.IGNORECASE)
_PT_TRACE = re.compile(r"\.pt\.trace$", re.IGNORECASE)


def listed(values: tuple[str, ...], conjunction: str = "or") -> str:
    """Return values as a text, such as ``.json, .json.gz or .json.zst``."""
    return f" {conjunction} ".join([", ".join(values[:-1]), values[-1]]) if len(values) > 1 else values[0]


def is_original_kept(file_format: str | None) -> bool:
    """Return whether the original of a file in this format, such as ``json.gz``, is kept by default."""
    return file_format is None or file_format.partition(".")[0] not in NOT_KEPT


def stem(name: str) -> str:
    """Return a file name without the suffixes of formats and compressions; "trace" if nothing is left."""
    return _ENDS.sub("", name) or "trace"


def child_name(name: str, suffix: str) -> str:
    """Return the name of a piece of a trace; the beginning of a long name is kept."""
    end = f".{suffix}.pt.trace.json.gz"
    beginning = (_PT_TRACE.sub("", stem(name)) or "trace").encode()[: max(NAME_MAX_BYTES - len(end.encode()), 1)]
    return beginning.decode(errors="ignore") + end

"""Names of files and objects that are imported: of traces, of archives of traces, and of unfinished files."""

from service.formats.names import SUFFIXES, listed

TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_UNFINISHED = ".tmp"


def is_tar(name: str) -> bool:
    """Return whether a file name is that of an archive of traces."""
    return name.lower().endswith(TARS)


def is_trace(name: str) -> bool:
    """Return whether a file name is that of a trace."""
    return name.lower().endswith(SUFFIXES)


def reason_to_skip(name: str, *, chosen: bool) -> str | None:
    """Return why a file that was found is not imported; None if it is.

    Args:
        name: its name.
        chosen: whether it matches a pattern, so that it may have any name.
    """
    if not chosen and (name.startswith(".") or not name.endswith((*SUFFIXES, *TARS, _UNFINISHED))):
        return f"It is not named like a trace ({listed(SUFFIXES)}) or a tar of traces."
    if name.endswith(_UNFINISHED):
        return "It is still being written, as its name shows."
    return None

"""Opening of originals: files of the data folder, files that other programs can change, and objects of buckets."""

import os
from io import BufferedReader, IOBase
from pathlib import Path

from service.store.external_files import check_unchanged, open_unchanged
from service.store.external_objects import ExternalObject, is_object


def open_original(path: str, mark: str | None) -> BufferedReader:
    """Open an original; blocks while a bucket answers.

    Args:
        path: the path of the file, or the URL of the object.
        mark: the mark of an original that other programs can change; None in the data folder.

    Raises:
        FileNotFoundError: the file of the data folder is missing.
        OriginalChanged: the file or the object has changed, or is missing.
        LocationError: the bucket can't be used.
    """
    if mark is None:
        return Path(path).open("rb")
    if is_object(path):
        return ExternalObject(path, mark).open()
    return os.fdopen(open_unchanged(Path(path), mark), "rb")


def check_original(file: IOBase, path: str, mark: str | None) -> None:
    """Raise `OriginalChanged` if an open original has changed; objects are checked as they are read.

    Args:
        file: the open file.
        path: its path, or the URL of the object.
        mark: its mark; None in the data folder.
    """
    if mark is not None and not is_object(path):
        check_unchanged(file.fileno(), mark)

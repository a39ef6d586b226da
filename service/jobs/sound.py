"""What an engine loads of a trace that was repaired, or of which something was refused: its events as one document.

The engine would refuse the bytes as they came, or stop at the damage. The copy is written when it is first needed and
lies beside the columns that it is made of, so that it goes with them.
"""

import asyncio
import os
from contextlib import aclosing
from io import BufferedWriter
from pathlib import Path

from service.jobs.exports import Exports
from service.store.folder import disk_errors


def sound_copy(columns: Path) -> Path:
    """Where the copy lies of the trace whose columns lie there."""
    return columns / "sound.json.gz"


async def write_sound_copy(exports: Exports, columns: Path) -> None:
    """Write the copy, whole or not at all, if it is not there yet.

    Raises:
        ExportFailed: the columns can't be read.
        DiskFull: there was no room for it.
    """
    path = sound_copy(columns)
    if await asyncio.to_thread(path.exists):
        return
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors():
        await asyncio.to_thread(partial.unlink, missing_ok=True)  # who was stopped may still write to that one
        file = await asyncio.to_thread(partial.open, "xb")
        try:
            async with aclosing(exports.document(columns, pack=True)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(_keep, file, partial, path)
        finally:
            await asyncio.to_thread(_drop, file, partial)


def _keep(file: BufferedWriter, partial: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    partial.replace(path)


def _drop(file: BufferedWriter, partial: Path) -> None:
    file.close()
    partial.unlink(missing_ok=True)

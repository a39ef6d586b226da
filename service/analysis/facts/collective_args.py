"""Arguments of the annotations of process groups. Ingest writes them to a file: few events have them, all over a trace.

Row groups of `events.parquet` hold the arguments of all events, which are most of its bytes, and are read as a whole.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.analysis.facts.activity import COLLECTIVE
from service.analysis.facts.scope import Scope
from service.store.folder import COLLECTIVES, disk_errors, new_file
from service.store.parts import Part

log = logging.getLogger(__name__)

_VERSION = {b"tracedock.collectives": b"1"}
_SCHEMA = pa.schema({"row": pa.int64(), "args": pa.string()}, _VERSION)


def collective_args(scope: Scope, rows: Sequence[int]) -> list[str | None]:
    """Return the arguments of the annotations of process groups at some rows, in their order.

    Those of a selection, and of a trace without a sound file of this version, are read from its events.

    Raises:
        ExportFailed: the events can't be read.
    """
    known = {} if scope.is_selection else scope.cached("arguments of collectives", lambda: _read(scope.columns))
    return [known[row] for row in rows] if known.keys() >= {*rows} else scope.args_at(rows)


def _read(columns: Path) -> dict[int, str | None]:
    path = columns / COLLECTIVES
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        return {}
    except (OSError, pa.ArrowException) as error:
        log.warning("arguments of collectives are read from the events: %s is damaged: %s", path, error)
        return {}
    if not _VERSION.items() <= (table.schema.metadata or {}).items():
        return {}
    return dict(zip(table["row"].to_pylist(), table["args"].to_pylist(), strict=True))


class CollectiveArgsWriter:
    """Writer of the file, while the columns of the trace are written.

    There is none of a trace without such annotations.

    Args:
        columns: folder of the trace's columns.
        resources: gets the file, which is complete once they are closed without an error.
    """

    def __init__(self, columns: Path, resources: ExitStack) -> None:
        self._columns = columns
        self._resources = resources
        self._writer: Any = None

    def add(self, part: Part) -> None:
        """Add the next events, in order of time, whose dictionary columns have one chunk.

        Raises:
            DiskFull: the disk has no room for the file.
        """
        chosen = np.flatnonzero(part.matching("name", partial(pc.match_substring_regex, pattern=COLLECTIVE)))
        if not len(chosen):
            return
        args = part.table["args"].take(pa.array(chosen)).cast(pa.string())
        if self._writer is None:
            file = self._resources.enter_context(new_file(self._columns / COLLECTIVES))
            self._writer = self._resources.enter_context(pq.ParquetWriter(file, _SCHEMA, compression="zstd"))
        with disk_errors():
            self._writer.write_table(pa.table({"row": part.first + chosen, "args": args}, _SCHEMA))

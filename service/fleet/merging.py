"""Merges the facts of many traces into the Parquet files of a part, which replace many small files for questions."""

import hashlib
import io
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from service.fleet.dataset import READS, Dataset, Part, table_name
from service.fleet.facts import TABLES
from service.fleet.record import Record

PART_MAX = 512
"""Maximum number of traces of a part."""
_ROW_GROUP = 1 << 17


def merge_facts(dataset: Dataset, records: Sequence[Record], merged: Collection[str]) -> str:
    """Write a part with the records and with the facts of their traces, and return its name.

    The name follows from the records. So a merge that is repeated writes the same part.

    Args:
        dataset: the dataset.
        records: the records of sources that are done.
        merged: names of the traces whose facts another part has.
    """
    traces = [trace for trace in dict.fromkeys(record.trace for record in records) if trace not in merged]
    rows: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in TABLES.items()}
    with ThreadPoolExecutor(READS, "facts") as threads:
        for facts in threads.map(dataset.facts, traces):
            for name, table in facts.items():
                rows[name].append(table)
    part = hashlib.sha256("\n".join(sorted(record.key for record in records)).encode()).hexdigest()[:16]
    for name, pieces in rows.items():
        buffer = io.BytesIO()
        pq.write_table(pa.concat_tables(pieces), buffer, compression="zstd", row_group_size=_ROW_GROUP)
        dataset.location.write(table_name(name, part), buffer.getvalue())
    dataset.add_part(Part(part, tuple(records), tuple(traces)))
    return part

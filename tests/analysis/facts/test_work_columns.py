"""Columns of work are read once, however many questions ask for them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from service.analysis.facts.work_columns import WorkColumns

CHUNKS = {"step": [[1], [2, None]], "name": [["a"], ["b", "a"]]}


def test_threads_share_columns_that_are_read_once() -> None:
    reads: list[str] = []

    def read(names: Sequence[str]) -> pa.Table:
        reads.extend(names)
        types = {"step": pa.int64(), "name": pa.dictionary(pa.int32(), pa.string())}
        return pa.table({name: pa.chunked_array(CHUNKS[name], types[name]) for name in names})

    work = WorkColumns(read)
    with ThreadPoolExecutor(4) as threads:
        tables = [*threads.map(work.table, [["step"], ["name", "step"], ["step", "name"], ["name"]])]
    assert sorted(reads) == ["name", "step"]
    assert [table.column_names for table in tables] == [["step"], ["name", "step"], ["step", "name"], ["name"]]
    assert tables[1].to_pydict() == {"name": ["a", "b", "a"], "step": [1, 2, None]}
    assert tables[0]["step"].num_chunks == 1

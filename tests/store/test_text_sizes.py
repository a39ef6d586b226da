"""The metadata of columns tells the sizes of the largest texts."""

from typing import Any

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from service.store.folder import EVENTS
from service.store.text_sizes import TextSizes
from tests.cutting.choices import cut, text_of

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
EVENTS_WITH_TEXTS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=12)


@given(EVENTS_WITH_TEXTS)
def test_sizes_are_those_of_the_largest_texts(texts: list[tuple[str | None, str | None, str | None]]) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": number, "dur": 1, "cat": category, "name": name, "args": {"a": value}}
        for number, (category, name, value) in enumerate(texts)
    ]
    with cut(text_of(*events), row_group=3) as columns:
        rows = pq.read_table(columns.parts.folder / EVENTS).to_pylist()
        texts_of = ([row[name] or "" for row in rows] for name in ("cat", "name", "args"))
        largest = (max((len(text.encode()) for text in column), default=0) for column in texts_of)
        assert columns.parts.text_sizes == TextSizes(*largest)

"""The metadata of a trace's columns has the exact spans of the ids of flow arrows in each part."""

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from service.store.flow_ids import LAUNCH_FLOWS, FlowIds
from tests.cutting.choices import cut, text_of

IDS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(["text", "7"])
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("stfXi"),
        "cat": st.sampled_from(["ac2g", "async", "fwdbwd", ""]),
        "ts": st.integers(0, 9),
        "pid": st.just(1),
        "tid": st.just(1),
    },
    optional={"id": IDS},
)


@given(st.lists(EVENTS, max_size=20), st.integers(1, 5))
def test_spans_are_those_of_the_arrow_ends_in_each_part(events: list[dict[str, object]], row_group: int) -> None:
    with cut(text_of(*events), row_group=row_group) as columns:
        for index in range(len(columns.parts)):
            rows = pq.ParquetFile(columns.parts.folder / "events.parquet").read_row_group(index).to_pylist()
            ends = [row for row in rows if row["ph"] in ("s", "t", "f") and row["id"] is not None]
            launches = [row["id"] for row in ends if row["cat"] in LAUNCH_FLOWS]
            others = [row["id"] for row in ends if row["cat"] not in LAUNCH_FLOWS]

            spans = (launches and (min(launches), max(launches)), others and (min(others), max(others)))
            assert columns.parts.flow_ids(index) == tuple(span or None for span in spans)


def test_columns_without_spans_give_those_of_all_ids() -> None:
    arrow = {"ph": "s", "pid": 1, "tid": 1, "ts": 0}
    events = [arrow | {"cat": cat, "id": number} for cat, number in (("ac2g", 900), ("fwdbwd", 3))]
    with cut(text_of(*events), row_group=10, untimed_apart=False) as columns:  # written without the metadata
        assert columns.parts.flow_ids(0) == FlowIds((3, 900), (3, 900))

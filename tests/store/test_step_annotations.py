"""The gathered steps are those that SQL finds among all events, however these are split into parts."""

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from service.store.parts import TRACK, Part
from service.store.step_annotations import StepAnnotations
from service.store.steps import steps_in
from service.trace.summary import Step
from tests.store.class_rows import Row, table_of

COLUMNS = ("position", "ph", "cat", "name", *TRACK, "ts_ns", "dur_ns")
KEYS = st.sampled_from([None, 0, 2**63 - 1])
TEXTS = st.sampled_from([None, '"a"', "1.5"])
TIMES = st.sampled_from([None, -1, 0, 7, 2**63 - 1])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from(["X", "X", "X", "i", None]),
            "cat": st.sampled_from(["user_annotation", None, "gpu_user_annotation"]),
            "name": st.sampled_from(["ProfilerStep#7", "ProfilerStep#08", "ProfilerStep#x", None]),
            **dict.fromkeys(("pid", "tid"), KEYS),
            **dict.fromkeys(("pid_text", "tid_text"), TEXTS),
            **dict.fromkeys(("ts_ns", "dur_ns"), TIMES),
        }
    ),
    max_size=30,
)


def gathered(*parts: list[Row]) -> list[Step]:
    annotations, first = StepAnnotations(), 0
    for index, events in enumerate(parts):
        annotations.add(Part(index, first, table_of(events, COLUMNS)))
        first += len(events)
    return annotations.steps()


@given(EVENTS, EVENTS)
def test_gathered_steps_are_those_of_sql(before: list[Row], behind: list[Row]) -> None:
    for position, event in enumerate(reversed([*before, *behind])):
        event["position"] = position
    with duckdb.connect() as db:
        db.register("events", table_of([*before, *behind], COLUMNS))
        assert gathered(before, behind) == steps_in(db)


def test_longest_of_steps_that_begin_together_is_first() -> None:
    plain = dict.fromkeys(COLUMNS) | {"ph": "X", "name": "ProfilerStep#1", "pid": 1, "tid": 2, "ts_ns": 10}
    events = [plain | {"position": position, "dur_ns": last} for position, last in enumerate((5, None, 9, -3))]

    assert [step["end_ns"] for step in gathered(events)] == [19, 15, 10, 10]

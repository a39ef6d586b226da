"""The metadata of columns lists the tracks of the work of each stream, as a pass over all events finds them."""

from hypothesis import given
from hypothesis import strategies as st

from service.store.work_tracks import LISTED_MAX
from tests.cutting.choices import cut, text_of

IDS = st.none() | st.integers(-1, 2) | st.sampled_from(["GPU 0", "7"])
ARGS = st.fixed_dictionaries({}, optional={"device": st.integers(0, 1), "stream": st.integers(7, 8)})
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "cpu_op"]),
        "ts": st.integers(0, 9),
        "dur": st.just(1),
    },
    optional={"pid": IDS, "tid": IDS, "args": ARGS},
)
WORK = {"ph": "X", "cat": "kernel", "ts": 0, "dur": 1}


@given(st.lists(EVENTS, max_size=20), st.sampled_from([{"streams": ["0/7"]}, {"streams": ["1/8"]}, {"devices": [0]}]))
def test_list_selects_what_a_pass_over_all_events_does(
    events: list[dict[str, object]], selection: dict[str, object]
) -> None:
    certain = [
        WORK | {"pid": device, "tid": "work", "args": {"device": device, "stream": stream}}
        for device, stream in ((0, 7), (1, 8))
    ]
    text = text_of(*events, *certain)
    with cut(text, row_group=3) as listed, cut(text, row_group=3, untimed_apart=False) as unlisted:
        assert listed.parts.work_tracks is not None
        assert unlisted.parts.work_tracks is None
        assert listed.kept(selection) == unlisted.kept(selection)


def test_list_has_a_limit() -> None:
    many = [WORK | {"pid": 0, "tid": tid, "args": {"device": 0, "stream": 7}} for tid in range(LISTED_MAX + 1)]
    with cut(text_of(*many[:-1]), row_group=1000) as columns:
        assert columns.parts.work_tracks is not None
        assert len(columns.parts.work_tracks) == LISTED_MAX
    with cut(text_of(*many), row_group=1000) as columns:
        assert columns.parts.work_tracks is None

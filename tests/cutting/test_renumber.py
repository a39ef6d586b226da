"""New pids of ranks are unique, pids of devices keep their digits, and process names contain the rank."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.cutting.renumber import KEPT_PIDS, new_pids, process_names

pids = st.integers(-5, 300) | st.integers(-(2**62), 2**62) | st.sampled_from(["", "Spans", "7", "Traces"])


@given(st.lists(st.sets(pids, max_size=30), min_size=1, max_size=9))
def test_new_pids_are_unique(ranks: list[set[int | str]]) -> None:
    mappings = new_pids(ranks)

    assert [mapping.keys() for mapping in mappings] == ranks
    pids_of_all = [pid for mapping in mappings for pid in mapping.values()]
    assert len(pids_of_all) == len({*pids_of_all})
    assert all(0 < pid < 1 << 31 for pid in pids_of_all)
    for mapping in mappings:
        for old, new in mapping.items():
            if isinstance(old, int) and 0 <= old < KEPT_PIDS:
                assert new % 10 ** len(str(KEPT_PIDS)) == old


def test_new_pids_do_not_depend_on_the_order_of_pids() -> None:
    assert new_pids([[7, "Spans", 0, -1], [0]]) == new_pids([[-1, 0, "Spans", 7, 7], [0]])
    assert new_pids([[0, 7, 4711], [0]]) == [{0: 1000, 7: 1007, 4711: 1100}, {0: 2000}]


def test_process_name_has_the_rank_and_the_original_name_or_kind() -> None:
    processes: list[dict[str, Any]] = [
        {"pid": 0, "name": "python", "labels": "GPU 0"},
        {"pid": 1, "name": None, "labels": None},
        {"pid": 2, "name": None, "labels": "CPU"},
        {"pid": 4711, "name": "python", "labels": "CPU"},
        {"pid": "Spans", "name": None, "labels": None},
    ]

    assert process_names("rank 3", processes, {0, 1}) == {
        0: "rank 3 · GPU 0",
        1: "rank 3 · GPU 1",
        2: "rank 3 · process 2",
        4711: "rank 3 · python",
        "Spans": "rank 3 · Spans",
    }

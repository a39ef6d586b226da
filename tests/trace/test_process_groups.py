"""Process groups are read from the list in a trace."""

from typing import Any

import pytest

from service.trace.process_groups import ProcessGroup, ProcessGroups, identities


def listed(*groups: dict[str, Any], world_size: Any = 8) -> ProcessGroups:
    return ProcessGroups.listed({"distributedInfo": {"pg_config": [*groups]}}, 0, world_size)


def test_process_group_is_found_by_name() -> None:
    groups = listed({"pg_name": "tp", "pg_desc": "tensor", "pg_size": 2, "ranks": [0, 1]}, {"pg_name": 1, "ranks": [0]})
    assert groups.of("tp", any_recorded=True) == ProcessGroup(2, "tensor", "[0, 1]")
    assert groups.of("1", any_recorded=True) == ProcessGroup(1, None, "[0]")
    assert groups.of("dp", any_recorded=True) == ProcessGroup()


def test_unnamed_process_group_has_the_size_of_the_listed_ones() -> None:
    assert listed({"pg_name": "0", "pg_size": 4}).of(None, any_recorded=True) == ProcessGroup(4)
    assert (
        listed({"pg_name": "0", "pg_size": 4}, {"pg_name": "1", "pg_size": 2}).of(None, any_recorded=False)
        == ProcessGroup()
    )


def test_unnamed_process_group_is_assumed_to_be_the_job_without_a_list() -> None:
    assert listed().of(None, any_recorded=False) == ProcessGroup(8, assumed=True)
    assert listed().of(None, any_recorded=True) == ProcessGroup()
    assert listed(world_size=None).of(None, any_recorded=False) == ProcessGroup()


def test_merged_trace_has_process_groups_for_each_rank() -> None:
    own = {"distributedInfo": {"pg_config": [{"pg_name": "0", "pg_size": 2}]}}
    groups = ProcessGroups.listed({"envelopes": {"5": own}, "distributedInfo": {}}, 5, 8)
    assert groups.of("0", any_recorded=True) == ProcessGroup(2)


@pytest.mark.parametrize(
    "info",
    [None, 7, [], {"pg_config": 5}, {"pg_config": [None, 3]}, {"pg_config": [{"pg_size": "2", "ranks": "[0]"}]}],
)
def test_malformed_process_groups_are_ignored(info: Any) -> None:
    groups = ProcessGroups.listed({"distributedInfo": info}, 0, "many")
    assert groups.of("0", any_recorded=False) == ProcessGroup()
    assert groups.of(None, any_recorded=False) == ProcessGroup()


@pytest.mark.parametrize("size", [float("nan"), float("inf"), -1, 0, 1e300])
def test_malformed_group_size_is_unknown(size: float) -> None:
    assert listed({"pg_name": "0", "pg_size": size, "ranks": [size]}).of("0", any_recorded=True).size in (None, 1)


def test_groups_with_the_same_name_differ_by_their_first_rank() -> None:
    long = ("1", str([*range(8, 64)])), ("1", "[8, 9, ..., 63]")
    groups = [("1", "[0, 1]"), *long, ("2", "[0, 1]"), (None, "[4]")]
    assert [*identities(groups).values()] == [("1", 0), ("1", 8), ("1", 8), ("2", 0), (None, 4)]


def test_group_of_unknown_ranks_is_the_only_one_of_its_name() -> None:
    groups = [("0", "[0, 1]"), ("0", None), ("0", "[]"), ("1", "[0]"), ("1", "[1]"), ("1", None), ("2", None)]
    assert [*identities(groups).values()] == [*[("0", 0)] * 3, ("1", 0), ("1", 1), ("1", None), ("2", None)]

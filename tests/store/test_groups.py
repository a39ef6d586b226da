"""Groups have unique names, and a trace is in one group at most."""

import pytest

from service.store.catalog import Catalog, new_trace_id
from service.store.groups import Groups
from service.trace.errors import GroupExists, UnknownGroup, UnknownTrace


@pytest.fixture
def groups(catalog: Catalog) -> Groups:
    return Groups(catalog.connection)


def add(catalog: Catalog, group: str | None = None, size: int = 5) -> str:
    return catalog.add(new_trace_id(), name="t.json", size=size, sha256="00", group=group).id


def members(catalog: Catalog, group_id: str) -> set[str]:
    return {trace.id for trace in catalog.page(limit=99, group=group_id)}


def test_first_trace_that_names_a_group_creates_it(catalog: Catalog, groups: Groups) -> None:
    traces = {add(catalog, "run 7", size) for size in (5, 7)}
    add(catalog)

    (group,) = groups.page(limit=9)
    assert (group.name, group.run_id, group.traces, group.size) == ("run 7", None, 2, 12)
    assert members(catalog, group.id) == traces
    trace = catalog.get(traces.pop())
    assert (trace.group_id, trace.group_name) == (group.id, "run 7")


def test_new_group_moves_traces_from_their_old_groups(catalog: Catalog, groups: Groups) -> None:
    first, second = add(catalog, "old"), add(catalog)

    group = groups.add("new", run_id="job-17", traces=[first, second])

    assert (group.run_id, group.traces) == ("job-17", 2)
    assert members(catalog, group.id) == {first, second}
    assert {group.name: group.traces for group in groups.page(limit=9)} == {"new": 2, "old": 0}


def test_group_names_are_unique(catalog: Catalog, groups: Groups) -> None:
    first, second = groups.add("a"), groups.add("b")

    with pytest.raises(GroupExists) as refused:
        groups.add("a")
    assert refused.value.extra == {"group": first.id}
    with pytest.raises(GroupExists):
        groups.update(second.id, name="a")
    assert groups.update(first.id, name="a") == first


def test_group_with_an_unknown_trace_is_not_created(groups: Groups) -> None:
    with pytest.raises(UnknownTrace, match="nowhere"):
        groups.add("a", traces=["nowhere"])

    assert groups.page(limit=9) == []


def test_update_of_a_group_changes_only_given_fields(catalog: Catalog, groups: Groups) -> None:
    first, second = add(catalog, "a"), add(catalog)
    (group,) = groups.page(limit=9)

    assert groups.update(group.id, run_id="7").run_id == "7"
    assert groups.update(group.id, name="b", traces=[second]).name == "b"

    assert members(catalog, group.id) == {second}
    assert catalog.get(first).group_id is None
    assert groups.update(group.id, run_id="").run_id is None


def test_removed_group_keeps_its_traces(catalog: Catalog, groups: Groups) -> None:
    trace = add(catalog, "a")
    groups.remove(str(catalog.get(trace).group_id))

    assert catalog.get(trace).group_id is None
    assert groups.page(limit=9) == []


def test_missing_group_is_unknown(groups: Groups) -> None:
    for ask in (groups.get, groups.update, groups.remove):
        with pytest.raises(UnknownGroup, match="'x'"):
            ask("x")


def test_pages_of_groups_are_complete_and_in_order(groups: Groups) -> None:
    names = [f"run {number}" for number in range(7)]
    for name in names:
        groups.add(name)

    listed, position = [], None
    while page := groups.page(limit=3, after=position):
        listed += [group.name for group in page]
        position = page[-1].created_ns, page[-1].id

    assert listed == names[::-1]
    assert [group.name for group in groups.page(limit=9, name="RUN 3")] == ["run 3"]

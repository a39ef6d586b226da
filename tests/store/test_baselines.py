"""Baselines name traces and groups, remember what they named, and keep it from retention."""

import pytest

from service.store import baselines as module
from service.store.baselines import Baselines
from service.store.catalog import Catalog
from service.store.groups import Groups
from service.trace.errors import BadBaselineName, UnknownBaseline, UnknownTrace
from service.trace.summary import Summary

ANY_TIME = 1 << 62


@pytest.fixture
def baselines(catalog: Catalog) -> Baselines:
    return Baselines(catalog.connection)


def add(catalog: Catalog, trace_id: str, group: str | None = None) -> str:
    summary = Summary(format="json", events={"kept": 1})
    return catalog.add(trace_id, name=f"{trace_id}.json", size=1, sha256="", summary=summary, group=group).id


def removable(catalog: Catalog) -> str | None:
    trace = catalog.oldest_removable(before_ns=ANY_TIME)
    return trace.id if trace else None


def test_baseline_names_a_trace_or_a_group(catalog: Catalog, baselines: Baselines) -> None:
    add(catalog, "a", "run")
    [group] = Groups(catalog.connection).page(limit=1)
    assert baselines.set("main", "a")
    assert (baselines.get("main").kind, baselines.get("main").target_name) == ("trace", "a.json")
    assert not baselines.set("main", group.id)
    assert (baselines.get("main").kind, baselines.get("main").target_name) == ("group", "run")


def test_history_has_each_target_once_in_a_row_the_latest_first(catalog: Catalog, baselines: Baselines) -> None:
    for trace_id in "ab":
        add(catalog, trace_id)
    for trace_id in "aabba":
        baselines.set("main", trace_id)
    assert [entry.target for entry in baselines.history("main")] == ["a", "b", "a"]


def test_history_is_bounded(catalog: Catalog, baselines: Baselines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY_MAX", 2)
    for trace_id in "abc":
        add(catalog, trace_id)
        baselines.set("main", trace_id)
        baselines.set("other", "a")
    assert [entry.target for entry in baselines.history("main")] == ["c", "b"]
    assert [entry.target for entry in baselines.history("other")] == ["a"]


def test_retention_keeps_the_present_target_only(catalog: Catalog, baselines: Baselines) -> None:
    for trace_id in "ab":
        add(catalog, trace_id)
    baselines.set("main", "a")
    assert removable(catalog) == "b"
    baselines.set("main", "b")
    assert removable(catalog) == "a"
    catalog.remove("a")
    assert removable(catalog) is None
    baselines.remove("main")
    assert removable(catalog) == "b"


def test_retention_keeps_all_traces_of_a_group_that_is_a_baseline(catalog: Catalog, baselines: Baselines) -> None:
    for trace_id in "ab":
        add(catalog, trace_id, "run")
    add(catalog, "c")
    baselines.set("main", Groups(catalog.connection).page(limit=1)[0].id)
    assert removable(catalog) == "c"
    catalog.remove("c")
    assert removable(catalog) is None


def test_baseline_of_a_deleted_target_stays_and_has_none(catalog: Catalog, baselines: Baselines) -> None:
    groups = Groups(catalog.connection)
    add(catalog, "a", "run")
    baselines.set("of-trace", "a")
    baselines.set("of-group", groups.page(limit=1)[0].id)
    catalog.remove("a")
    groups.remove(groups.page(limit=1)[0].id)
    entries = [baselines.get(name) for name in ("of-trace", "of-group")]
    assert [(entry.target, entry.target_name) for entry in entries] == [(None, "a.json"), (None, "run")]


def test_unknown_targets_and_names_are_refused(catalog: Catalog, baselines: Baselines) -> None:
    add(catalog, "a")
    with pytest.raises(UnknownTrace, match="nowhere"):
        baselines.set("main", "nowhere")
    for name in ("", "-x", "a/b", "a b", "é", "x" * 101, "a\n"):
        with pytest.raises(BadBaselineName):
            baselines.set(name, "a")
    for act in (baselines.get, baselines.history, baselines.remove):
        with pytest.raises(UnknownBaseline, match="main"):
            act("main")
    assert baselines.page(limit=9) == []


def test_pages_are_in_order_of_names(catalog: Catalog, baselines: Baselines) -> None:
    add(catalog, "a")
    for name in ("b", "a", "c"):
        baselines.set(name, "a")
    assert [entry.name for entry in baselines.page(limit=2)] == ["a", "b"]
    assert [entry.name for entry in baselines.page(limit=2, after="b")] == ["c"]

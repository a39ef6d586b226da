"""The library lists runs and single traces as one list; filters refer to traces."""

from collections.abc import Sequence
from typing import Any

import pytest

from service.store.catalog import Catalog, State, new_trace_id
from service.store.groups import Groups
from service.store.library import Library, LibraryQuery, Sort
from service.trace.summary import Device, Summary

H100: Device = {"id": 0, "name": "NVIDIA H100", "memory_bytes": None, "events": 7, "bounds": None}
IDLE: Device = {"id": 1, "name": "NVIDIA A100", "memory_bytes": None, "events": 0, "bounds": None}


@pytest.fixture
def library(catalog: Catalog) -> Library:
    return Library(catalog.connection)


def add(catalog: Catalog, name: str, group: str | None = None, *, size: int = 5, **summary: object) -> str:
    """Add a trace with a summary; without one, it stays queued."""
    facts = Summary.from_json(Summary(**summary).as_json()) if summary else None  # type: ignore[arg-type]
    return catalog.add(new_trace_id(), name=name, size=size, sha256="00", group=group, summary=facts).id


def names(library: Library, limit: int = 99, offset: int = 0, **query: object) -> list[str]:
    page = library.page(LibraryQuery(**query), limit=limit, offset=offset)  # type: ignore[arg-type]
    return [entry.name for entry in page.entries]


def spans(start_ns: int, end_ns: int, events: int = 1) -> dict[str, Any]:
    bounds = {"start_ns": start_ns, "end_ns": end_ns}
    return {"bounds": bounds, "events": {"in": events, "kept": events, "refused": 0}}


def test_run_is_one_entry_among_single_traces(catalog: Catalog, library: Library) -> None:
    add(catalog, "single.json", size=9)
    for rank in range(8):
        add(catalog, f"rank{rank}.json", "gpt", size=10 + rank, rank=rank, world_size=16, **spans(0, 100 + rank))

    page = library.page(LibraryQuery(), limit=99)

    assert [(entry.name, len(entry.traces)) for entry in page.entries] == [("gpt", 8), ("single.json", 1)]
    run = page.entries[0]
    assert (run.size, run.span_ns, run.events, run.ranks) == (sum(range(10, 18)), 107, 8, [*range(8)])
    assert (page.total, page.traces, page.stored) == (2, 9, 9)


def test_traces_of_a_run_are_listed_by_rank(catalog: Catalog, library: Library) -> None:
    for rank in (10, 2, None, 0):
        add(catalog, f"of {rank}", "gpt", rank=rank, world_size=16)
    add(catalog, "other")

    run = catalog.get(add(catalog, "last", "gpt", rank=11)).group_id

    assert names(library, run=run, sort="rank", descending=False) == ["of 0", "of 2", "of 10", "last", "of None"]
    assert names(library, run="none") == []


def test_runs_sort_by_the_number_of_their_ranks_not_of_their_traces(catalog: Catalog, library: Library) -> None:
    for rank in range(3):
        add(catalog, f"rank{rank}", "three ranks", rank=rank)
    for number in range(4):
        add(catalog, f"cycle{number}", "four cycles", rank=number % 2)

    assert names(library, sort="ranks") == ["three ranks", "four cycles"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("uploaded", ["b", "rank2", "rank10"]),
        ("name", ["rank10", "rank2", "b"]),
        ("size", ["rank10", "b", "rank2"]),
        ("span", ["rank2", "rank10", "b"]),
        ("ranks", ["b", "rank2", "rank10"]),
        ("events", ["rank2", "rank10", "b"]),
    ],
)
def test_columns_sort_in_both_orders_with_unknown_values_last(
    catalog: Catalog, library: Library, sort: Sort, expected: Sequence[str]
) -> None:
    add(catalog, "rank10", size=30, **spans(0, 4, events=1))
    add(catalog, "rank2", size=10, **spans(0, 9, events=8))
    add(catalog, "b", size=20)

    assert names(library, sort=sort) == expected
    known = [name for name in expected if name != "b"] if sort in ("span", "events") else expected
    ascending = names(library, sort=sort, descending=False)
    if sort == "ranks":  # all have one, and equal entries are newest first in either order
        assert ascending == expected
    else:
        assert ascending[: len(known)] == [*reversed(known)]
        assert ascending[len(known) :] == [name for name in expected if name not in known]


def test_words_are_searched_in_traces_runs_and_gpus(catalog: Catalog, library: Library) -> None:
    add(catalog, "Rank0.json", "GPT large", rank=0)
    add(catalog, "rank1.json", "GPT large", rank=1)
    trace_id = add(catalog, "bert.json", devices=[H100, IDLE])

    assert names(library, text="gpt RANK1") == ["GPT large"]
    assert library.page(LibraryQuery(text="gpt rank1"), limit=9).entries[0].matching == 1
    assert names(library, text="large") == ["GPT large"]
    assert names(library, text="h100") == names(library, text=trace_id) == ["bert.json"]
    assert names(library, text="a100") == names(library, text="gpt bert") == []


def test_filters_select_by_state_pin_gpu_damage_and_kind(catalog: Catalog, library: Library) -> None:
    add(catalog, "queued")
    pinned = add(catalog, "pinned", devices=[IDLE])
    catalog.update(pinned, pinned=True)
    repaired = {"repaired": 1, "refused": 0, "notes": []}
    add(catalog, "damaged gpu", "run", devices=[H100], health=repaired)
    catalog.add(new_trace_id(), name="merged", size=1, sha256="", summary=Summary(rank=1))

    assert names(library, states=(State.QUEUED,)) == ["queued"]
    assert names(library, pinned=True) == ["pinned"]
    assert names(library, gpu=True) == ["run"]
    assert names(library, gpu=False) == ["merged", "pinned"]
    assert names(library, damaged=True) == ["run"]
    assert names(library, kind="run") == ["run"]
    assert names(library, kind="file") == ["pinned", "queued"]
    assert names(library, kind="derived") == ["merged"]
    assert names(library, kind="run", pinned=True) == []


def test_merged_trace_has_the_number_of_its_ranks(catalog: Catalog, library: Library) -> None:
    add(catalog, "merged", world_size=4, ranks=[{"rank": rank, "pids": []} for rank in (0, 2)])

    [entry] = library.page(LibraryQuery(), limit=9).entries
    assert (entry.traces[0].facts.merged, entry.traces[0].facts.rank, entry.ranks) == (2, None, [])


def test_pages_hold_each_entry_once(catalog: Catalog, library: Library) -> None:
    for number in range(7):
        add(catalog, f"t{number}", "run" if number % 3 == 0 else None, size=number % 2)

    for sort in ("uploaded", "size", "name"):
        pages = [names(library, limit=2, offset=offset, sort=sort) for offset in range(0, 6, 2)]
        assert sorted(name for page in pages for name in page) == ["run", "t1", "t2", "t4", "t5"]
    assert names(library, limit=2, offset=99) == []


def test_empty_run_is_listed_unless_traces_are_filtered(catalog: Catalog, library: Library) -> None:
    Groups(catalog.connection).add("empty")

    assert names(library) == names(library, text="emp") == names(library, kind="run") == ["empty"]
    assert names(library, states=(State.READY,)) == names(library, text="full") == []


def test_kept_pages_follow_each_change(catalog: Catalog, library: Library) -> None:
    assert names(library) == []
    trace_id = add(catalog, "a", size=1, rank=0)
    assert names(library) == ["a"]
    catalog.update(trace_id, group="run")
    assert names(library) == ["run"]
    catalog.remove(trace_id)
    assert names(library, kind="file") == []
    assert library.page(LibraryQuery(), limit=9).entries[0].traces == []


def test_summary_of_a_trace_is_parsed_once(catalog: Catalog, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    from_json = Summary.from_json

    def counted(text: str) -> Summary:
        parsed.append(text)
        return from_json(text)

    for rank in range(30):
        add(catalog, f"rank{rank}", rank=rank)
    monkeypatch.setattr(Summary, "from_json", counted)

    assert names(library, sort="name", descending=False, text="rank", limit=1) == ["rank0"]
    assert names(library, sort="name", descending=True, text="rank", limit=1) == ["rank29"]
    assert len(parsed) == 30

"""A view has a short text, which stays the same, and names what an engine loads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.views import View, sources_of
from service.store.catalog import State, Trace
from service.trace.errors import BadSelection, SourceUnavailable
from service.trace.selection import Selection
from service.trace.summary import Summary

ID = "0123456789ab"
STEP = Selection(steps=[3])


def trace(file_format: str | None, kept: int, **changed: object) -> Trace:
    summary = Summary(format=file_format, events={"in": kept, "kept": kept, "refused": 0})
    return replace(Trace(ID, "a", State.READY, None, 0, 100, "digest", summary), **changed)  # type: ignore[arg-type] # fields of several types


@given(
    st.sampled_from([None, STEP, Selection(names=['}","source":"original"}'])]),
    st.sampled_from(["all", "essential", "none"]),
    st.sampled_from([None, "original"]),
)
def test_text_of_a_view_is_parsed_to_the_same_view(selection: Selection | None, args: str, source: str | None) -> None:
    view = View(ID, selection, args, source)  # type: ignore[arg-type] # literals
    assert View.parsed(str(view)) == view


def test_texts_of_views_of_columns_stay_as_they_were() -> None:
    assert str(View(ID)) == str(View(ID, source="columns")) == ID
    assert str(View(ID, args="none")) == f"{ID}~eyJhcmdzIjoibm9uZSJ9"
    assert str(View(ID, STEP)) == f"{ID}~eyJzZWxlY3Rpb24iOnsic3RlcHMiOlszXX19"
    assert str(View(ID, source="original")) == f"{ID}~eyJzb3VyY2UiOiJvcmlnaW5hbCJ9"


def test_text_with_an_unknown_source_is_refused() -> None:
    with pytest.raises(BadSelection, match="unknown value of `source`"):
        View.parsed(f"{ID}~eyJzb3VyY2UiOiJmaWxlIn0")


@pytest.mark.parametrize(
    ("stored", "sources"),
    [
        (trace("json.gz", 5), ("columns",)),
        (trace("json.gz", 0), ("columns",)),
        (trace("pftrace", 5), ("columns", "original")),
        (trace("pftrace.zst", 5), ("columns", "original")),
        (trace("pftrace", 0), ("original",)),
        (trace("pftrace", 5, original_removed=True), ("columns",)),
        (trace(None, 5, sha256=""), ("columns",)),
    ],
)
def test_sources_depend_on_the_format_the_events_and_the_file(stored: Trace, sources: tuple[str, ...]) -> None:
    assert sources_of(stored) == sources
    assert View(ID).resolved(stored).source == sources[0]
    View(ID).check(stored)


@pytest.mark.parametrize(
    ("view", "stored", "reason"),
    [
        (View(ID, source="original"), trace("json.gz", 5), "its file has the format json.gz"),
        (View(ID, source="original"), trace(None, 5, sha256=""), "was made here, and has no file"),
        (View(ID, source="original"), trace("pftrace", 5, original_removed=True), "the file is not kept any more"),
        (View(ID, STEP, source="original"), trace("pftrace", 5), "the original is loaded as it is"),
        (View(ID, args="none", source="original"), trace("pftrace", 5), "the original is loaded as it is"),
        (View(ID, STEP), trace("pftrace", 0), "the trace has no events"),
        (View(ID, source="columns"), trace("pftrace", 0), "can't load the columns: the trace has no events"),
    ],
)
def test_views_that_no_engine_can_load_are_refused_with_the_reason(view: View, stored: Trace, reason: str) -> None:
    with pytest.raises(SourceUnavailable, match=reason) as refused:
        view.check(stored)
    assert refused.value.extra["sources"] == sources_of(stored)

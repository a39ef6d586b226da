"""Query parameters that name a view: a trace, a selection of it, the arguments of its events, or its original."""

from typing import Annotated

from fastapi import Depends, Query

from service.http.resource_parameters import TraceId
from service.http.selection_parameters import Selected
from service.operations.views import View
from service.trace.selection_fields import Args, ViewSource

SOURCE = (
    "what the engine loads: the events in `columns`, or the `original` of a Perfetto trace as it is, with its packets"
    " of other kinds, and without `selection` and `args`. By default the first of the trace's `sources`"
)
"""Description of a view's source."""

ESSENTIAL = "`essential` are correlation, device, stream and bytes, and load sooner"
"""Description of one value of `args`."""

SLICE_FORMS = (
    "`position:123` is the event with that `position` in the columns; `at:1695000000123:aten::mm` the one with that"
    " name that begins at that time, in ns of the trace's own clock; `id:456` the one with that id in the engine's"
    " table `slice`. Ids are the same for all `args`, but differ between selections"
)
"""Description of the forms of a reference to a slice."""


def view_of(
    trace_id: TraceId,
    selection: Selected,
    args: Annotated[
        Args,
        Query(description=f"which arguments of events the engine has; {ESSENTIAL}"),
    ] = "all",
    source: Annotated[ViewSource | None, Query(description=SOURCE)] = None,
) -> View:  # fmt: skip
    """Return the view that a request names; raises `BadSelection`."""
    return View(trace_id, selection, args, source)


Viewed = Annotated[View, Depends(view_of)]
"""The type of a route's parameter that receives the view named by the query."""

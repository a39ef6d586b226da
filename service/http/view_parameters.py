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


def view_of(
    trace_id: TraceId,
    selection: Selected,
    args: Annotated[
        Args,
        Query(description="which arguments of events the engine has; `essential` are correlation, device, stream"
                          " and bytes, and load sooner"),
    ] = "all",
    source: Annotated[ViewSource | None, Query(description=SOURCE)] = None,
) -> View:  # fmt: skip
    """Return the view that a request names; raises `BadSelection`."""
    return View(trace_id, selection, args, source)


Viewed = Annotated[View, Depends(view_of)]
"""The type of a route's parameter that receives the view named by the query."""

"""``/library``: runs and single traces as one list that is searched, filtered, sorted and paged."""

from typing import Annotated, Literal

from fastapi import Query, Response

from service.http import shapes
from service.http.presenters import library_entry
from service.http.resource_parameters import Limit
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.services import ServicesDep
from service.store.catalog import State
from service.store.library import Kind, LibraryQuery, Sort

router = ApiRouter(prefix="/library", tags=["traces"])


@router.get("", summary="List runs and single traces", responses={200: {"model": shapes.LibraryList}})
def list_library(  # noqa: PLR0913, PLR0917 - FastAPI passes each request parameter as an argument
    services: ServicesDep,
    q: Annotated[
        str, Query(max_length=500, description="words that occur in the names or ids of a trace, its run or its GPUs")
    ] = "",
    state: Annotated[list[State] | None, Query(description="only traces in this state, or one of these")] = None,
    kind: Annotated[
        Kind | None,
        Query(description="`run`, `file` (uploaded or imported, in no run) or `derived` (made here, in no run)"),
    ] = None,
    pinned: Annotated[bool | None, Query(description="only pinned traces, or only others")] = None,
    gpu: Annotated[bool | None, Query(description="only ready traces with work on a GPU, or without")] = None,
    damaged: Annotated[
        bool | None, Query(description="only ready traces that were incomplete or damaged, or only others")
    ] = None,
    run: Annotated[str | None, Query(description="the id of a run: list its traces, each as an entry")] = None,
    sort: Annotated[Sort, Query(description="what to sort by")] = "uploaded",
    order: Annotated[Literal["asc", "desc"], Query(description="ascending or descending")] = "desc",
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="number of entries to skip")] = 0,
) -> Response:
    """Return a page of entries. Filters refer to traces: a run is listed if one of its traces matches all of them.

    Equal entries are newest first; unknown values come last in either order.
    """
    query = LibraryQuery(
        text=q, states=tuple(state or ()), pinned=pinned, gpu=gpu, damaged=damaged, kind=kind, run=run, sort=sort,
        descending=order == "desc",
    )  # fmt: skip
    page = services.library.page(query, limit=limit, offset=offset)
    entries = [
        library_entry(entry, page.single.get(entry.id), services.ingests.progress)
        for entry in page.entries
        if entry.run or entry.id in page.single  # else it was deleted meanwhile
    ]
    return json_response({"entries": entries, "total": page.total, "traces": page.traces, "stored": page.stored})

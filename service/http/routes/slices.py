"""``GET /traces/{id}/slice``: the event of a slice."""

from typing import Annotated

from fastapi import Query, Request, Response

from service.engine.trace_processor.slice_lookup import slice_of
from service.http import shapes
from service.http.authentication import identity
from service.http.routers import ApiRouter
from service.http.routes.sessions import LOADING, WaitForEngine, loading
from service.http.services import ServicesDep
from service.http.view_parameters import SLICE_FORMS, Viewed
from service.jobs.children.tasks.questions import SliceTask
from service.rendering.view import check_engine_id
from service.trace.errors import SourceUnavailable
from service.trace.slices import SliceReference

router = ApiRouter(prefix="/traces", tags=["sessions"])


@router.get(
    "/{trace_id}/slice",
    summary="The event of a slice, with all its arguments",
    responses={200: {"model": shapes.Slice}, 202: LOADING},
)
async def get_slice(
    view: Viewed,
    slice_text: Annotated[str, Query(alias="slice", description=f"the slice: {SLICE_FORMS}")],
    request: Request,
    services: ServicesDep,
    wait: WaitForEngine = 30,
) -> Response:
    """Return the event of a slice of the trace or of a selection, with all arguments, whatever the engine has.

    A slice with an `id` is looked up in the engine of the view, which is started if it is not running; the response is
    202 with the session if the engine is still loading after ``wait`` seconds. Slices that consist of two events, such
    as a begin and an end, are refused: SQL returns their arguments.
    """
    reference, trace = SliceReference.parsed(slice_text), services.trace_operations.ready(view.trace_id)
    view.check(trace)
    if view.resolved(trace).source == "original":
        raise SourceUnavailable("Slices of an original have no events in columns; its engine has all arguments.")
    columns, summary = services.folder.columns_of(trace.id), trace.summary_or_empty
    if reference.kind != "id":
        task = SliceTask(columns, summary, view.selection, reference)
    else:
        check_engine_id(reference.number, summary.kept_events)
        client = identity(request)
        session = services.session_operations.open(view, client)
        if not await session.settled(wait):
            return loading(session)
        chosen, alike = await slice_of(session, reference.number, client, services.settings.query_timeout_s)
        task = SliceTask(columns, summary, view.selection, engine_slice=chosen, alike=alike)
    return Response(await services.analyses.slice(task), media_type="application/json")

"""``/traces/{id}/report`` and ``/groups/{id}/report``: what the analyses say, in one file."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import Query, Request, Response

from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.http.authentication import identity
from service.http.openapi import fragments
from service.http.resource_parameters import GroupId, TraceId
from service.http.routers import ApiRouter
from service.http.routes.analysis import source_of
from service.http.routes.traces import Wait
from service.http.selection_parameters import Selected
from service.http.services import Services, ServicesDep
from service.jobs.children.tasks.questions import AnalysedTrace
from service.report.answers import Answer, NotKnown
from service.report.compose import RUN_ANALYSES, TRACE_ANALYSES, reported_cycle, run_report, trace_report
from service.report.document import Report
from service.report.html import CONTENT_SECURITY_POLICY, as_html
from service.report.markdown import as_markdown
from service.trace.errors import NotApplicable, TracedockError
from service.trace.selection import Selection

ReportForm = Literal["html", "markdown"]
HTML, MARKDOWN = "text/html", "text/markdown"
_SUFFIXES: Mapping[ReportForm, str] = {"html": "html", "markdown": "md"}

Form = Annotated[
    ReportForm | None,
    Query(alias="format", description="by default `markdown` if the `Accept` field names it, else `html`"),
]
ReportedCycle = Annotated[
    int | None, Query(ge=0, description="only the traces of this cycle, by its number; by default the first cycle")
]
_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The report, in the format that `format` or `Accept` names",
        "content": fragments.content({HTML: fragments.TEXT, MARKDOWN: fragments.TEXT}),
    }
}

router = ApiRouter(tags=["reports"])


@router.get("/traces/{trace_id}/report", summary="Report on a trace", response_class=Response, responses=_RESPONSES)
async def get_trace_report(
    trace_id: TraceId, request: Request, services: ServicesDep, selection: Selected, wait: Wait = 0, form: Form = None
) -> Response:
    """Return what the analyses say about a trace: where the time goes, what to try first, and the largest costs.

    The HTML is one file that needs no network. The Markdown has the same sections, with at most ten rows of each table.
    An analysis that does not apply has its reason instead. ``wait`` waits for a trace that is not ready.
    """
    await services.group_operations.settle([trace_id], wait)
    source = source_of(services, trace_id, selection)
    answers = await _answers(services, request, TRACE_ANALYSES, [source])
    call_of = _calls(request, f"traces/{trace_id}", selection)
    report = trace_report(source.name, source.summary, answers, call_of, selection=_text(selection))
    return _response(report, form, request)


@router.get("/groups/{group_id}/report", summary="Report on a run", response_class=Response, responses=_RESPONSES)
async def get_group_report(
    group_id: GroupId,
    request: Request,
    services: ServicesDep,
    selection: Selected,
    wait: Wait = 0,
    form: Form = None,
    cycle: ReportedCycle = None,
) -> Response:
    """Return what the analyses say about all ranks of a group together, as ``GET /traces/{id}/report`` does for one.

    If the traces are of several cycles, the report is on one of them, and names the others.
    Traces that could not be read are left out, and the report names them. ``wait`` waits for traces that are not ready.
    """
    groups = services.group_operations
    await groups.settle([group_id], wait)
    ready, failed = groups.ready_members(group_id)
    members = [source_of(services, trace_id, selection) for trace_id in ready]
    reported, cycle_facts = await asyncio.to_thread(reported_cycle, members, cycle, lambda source: source.whole_summary)
    sources = reported.traces
    answers = await _answers(services, request, RUN_ANALYSES, sources)
    report = run_report(
        services.groups.get(group_id).name,
        [(source.name, source.summary) for source in sources],
        answers,
        _calls(request, f"groups/{group_id}", selection, reported.number if cycle_facts else None),
        cycle_facts=cycle_facts,
        left_out=[services.catalog.get(trace_id).name for trace_id in failed],
        selection=_text(selection),
    )
    return _response(report, form, request)


async def _answers(
    services: Services, request: Request, analyses: Sequence[str], sources: Sequence[AnalysedTrace]
) -> dict[str, Answer | NotKnown]:
    """Ask all analyses at once; the first error that is not `NotApplicable` ends the others."""

    async def answer(name: str) -> Answer | NotKnown:
        parameters = parameters_of(question_of(name), {}).model_dump(mode="json")
        pieces = services.analyses.answer(name, parameters, sources, client=" ".join(identity(request)))
        try:
            return Answer.parsed(b"".join([piece async for piece in pieces]))
        except NotApplicable as error:
            return NotKnown(str(error))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(answer(name)) for name in analyses}
    except* TracedockError as errors:
        raise errors.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


def _calls(
    request: Request, target: str, selection: Selection | None, cycle: int | None = None
) -> Callable[[str], str]:
    """Return a function that returns the request for the whole answer of an analysis."""
    root = f"{request.scope.get('root_path', '').rstrip('/')}/api/v1"
    parameters = {
        **({} if cycle is None else {"cycle": cycle}),
        **({"selection": _text(selection)} if selection else {}),
    }
    query = f"?{urlencode(parameters)}" if parameters else ""
    return lambda name: f"GET {root}/{target}/analysis/{name}{query}"


def _text(selection: Selection | None) -> str:
    return json.dumps(selection.as_dict()) if selection else ""


def _response(report: Report, form: ReportForm | None, request: Request) -> Response:
    form = form or ("markdown" if MARKDOWN in request.headers.get("accept", "") else "html")
    name = quote(f"{report.title}.report.{_SUFFIXES[form]}", safe="")
    headers = {
        "Content-Disposition": f"inline; filename*=UTF-8''{name}",
        "Cache-Control": "private, no-cache",
        "Vary": "Accept",
    }
    if form == "markdown":
        return Response(as_markdown(report), headers=headers, media_type=MARKDOWN)
    return Response(
        as_html(report), headers=headers | {"Content-Security-Policy": CONTENT_SECURITY_POLICY}, media_type=HTML
    )

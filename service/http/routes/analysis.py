"""``/traces/{id}/analysis``: the built-in analyses of traces."""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from fastapi import Query, Request, Response

from service.analysis.catalogue import question_of
from service.analysis.forms import WHOLE_FORMS, chosen_tables
from service.analysis.question import parameters_of
from service.http import shapes
from service.http.authentication import identity
from service.http.declarations import ROUTE_PATH
from service.http.openapi import fragments
from service.http.parameters import PathValues, also_takes
from service.http.resource_parameters import ChosenCycle, TraceId
from service.http.responses import has_current
from service.http.routers import ApiRouter
from service.http.routes.download import ProcessOutput
from service.http.routes.traces import Wait
from service.http.selection_parameters import NAMES as SELECTION_NAMES
from service.http.selection_parameters import Selected
from service.http.services import Services, ServicesDep
from service.http.tables import ARROW, CSV, JSON, accepted
from service.jobs.children.tasks.questions import AnalysedTrace
from service.store.step_traces import step_traces
from service.trace.cycles import of_cycles
from service.trace.errors import BadAnalysisRequest
from service.trace.selection import Selection

TRACES_MAX = 4096
"""Maximum number of further traces of an analysis; also of base traces."""
_ROWS_MAX = 1 << 62
"""Maximum of numbers of rows, which Arrow takes as integers of 64 bits."""

Form = Literal["json", "columns", "csv", "arrow"]
FORMS: dict[str, Form] = {JSON: "json", CSV: "csv", ARROW: "arrow"}
"""The format of each media type."""
MEDIA_TYPES: dict[Form, str] = {"columns": JSON, **{form: media_type for media_type, form in FORMS.items()}}
"""The media type of each format."""
COMMON_PARAMETERS = frozenset(
    {
        *SELECTION_NAMES,
        *("traces", "cycle", "base", "base_selection", "base_cycle"),
        *("table", "limit", "offset", "format", "wait"),
    }
)
"""The query parameters that all analyses have."""

_SERVER_RUN = secrets.token_hex(8)
"""A part of the ETag of an answer. A ready trace does not change, but the server may change at each restart."""

Tables = Annotated[
    list[str] | None,
    Query(
        alias="table",
        description="names of the tables to return; by default all or, as `csv` and `arrow` have one table, the first",
    ),
]
RowLimit = Annotated[
    int | None, Query(ge=0, le=_ROWS_MAX, description="maximum number of rows of each table; by default all")
]
Offset = Annotated[int, Query(ge=0, le=_ROWS_MAX, description="number of rows of each table to skip")]
BaseSelection = Annotated[
    str | None,
    Query(
        description='for comparisons: selection of the base, like `{"steps": [7]}`; by default that of the other'
        " side, and `{}` is all of it"
    ),
]
BaseCycle = Annotated[
    int | None,
    Query(
        ge=0,
        description="for comparisons: only the traces of the base of this cycle; by default, the cycle of the other"
        " side, unless the base has only one",
    ),
]

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The tables, in the format that `format` or `Accept` names",
        "model": shapes.Answer | shapes.AnswerInColumns,
        "content": fragments.content({JSON: {}, CSV: fragments.CSV_ROWS, ARROW: fragments.ARROW_STREAM}),
        "headers": fragments.header_fields(
            {
                "ETag": "the tag of the answer",
                "Tracedock-Table": "the table that CSV or Arrow has",
                "Tracedock-Tables": "the names of all tables of the analysis",
            }
        ),
    },
    304: fragments.NOT_MODIFIED,
}
"""The responses of an analysis, but for errors."""

router = ApiRouter(prefix="/traces", tags=["analysis"])


def source_of(
    services: Services, trace_id: str, selection: Selection | None, *, is_base: bool = False
) -> AnalysedTrace:
    """Return a trace in the form that `Analyses.answer` takes; raises `UnknownTrace` or `NotReady`."""
    trace = services.trace_operations.ready(trace_id)
    columns = services.folder.columns_of(trace.id)
    return AnalysedTrace(
        columns,
        trace.summary_or_empty,
        selection,
        trace.name,
        is_base=is_base,
        execution_traces=services.attachments.execution_traces(trace),
        step_traces=step_traces(services.catalog, services.folder, trace),
    )


@router.get("/{trace_id}/analysis", summary="List the analyses of a trace", responses={200: {"model": shapes.Analyses}})
def list_analyses(trace_id: TraceId, request: Request, services: ServicesDep, selection: Selected) -> Response:
    """Return each analysis with its tables and parameters, and the reason why it does not apply to the trace, if so."""
    pieces = services.analyses.applicable(source_of(services, trace_id, selection), client=" ".join(identity(request)))
    return ProcessOutput(pieces, MEDIA_TYPES["json"], {})


def parameters_of_path(path: PathValues) -> Iterable[str]:
    """Return the parameters of the analysis whose name is in a path; raises `UnknownAnalysis`."""
    return question_of(path["name"]).parameters.model_fields


@router.get(
    "/{trace_id}/analysis/{name}",
    summary="Answer an analysis",
    response_class=Response,
    responses=ANSWERS,
    openapi_extra={"parameters": [fragments.IF_NONE_MATCH]},
)
@also_takes(parameters_of_path)
async def answer_question(  # noqa: PLR0913, PLR0917 - FastAPI passes each request parameter as an argument
    name: str,
    trace_id: TraceId,
    request: Request,
    services: ServicesDep,
    selection: Selected,
    traces: Annotated[
        list[str] | None, Query(max_length=TRACES_MAX, description="further traces: the other ranks of the run")
    ] = None,
    base: Annotated[
        list[str] | None,
        Query(
            max_length=TRACES_MAX, description="for comparisons: ids of the traces, or of the group, to compare with"
        ),
    ] = None,
    base_selection: BaseSelection = None,
    wait: Wait = 0,
    tables: Tables = None,
    form: Annotated[Form | None, Query(alias="format", description="takes precedence over the `Accept` field")] = None,
    limit: RowLimit = None,
    offset: Offset = 0,
    cycle: ChosenCycle = None,
    base_cycle: BaseCycle = None,
) -> Response:
    """Return the result of an analysis, in which ``skipped`` lists the ranks without a result; 304 if the ETag matches.

    JSON has all tables, or those that ``table`` names; so has ``format=columns``, which is JSON with an array of values
    for each column instead of rows, and reads faster. CSV and Arrow have one table: the header ``Tracedock-Table`` has
    its name, and ``Tracedock-Tables`` the names of all tables. ``limit`` and ``offset`` choose the rows of each table;
    in JSON, ``total`` is the number of all rows.

    ``compare`` takes exactly two sides: the traces of ``base``, and all other traces. Without ``base``, it takes two
    traces, and the first is the base. A selection is of both sides, unless ``base_selection`` is given.

    If the traces are of several cycles, each row has its cycle. ``cycle`` keeps the traces of one cycle: then the
    answer is that of these traces alone. In a comparison with a chosen cycle, each side is of one cycle.

    A trace that is named again is analysed once. ``wait`` waits for traces that are not ready.
    """
    question = question_of(name)
    request.scope[ROUTE_PATH] = request.scope["route"].path.replace("{name}", name)
    values = {key: value for key, value in request.query_params.items() if key not in COMMON_PARAMETERS}
    parameters = parameters_of(question, values).model_dump(mode="json")
    form = form or FORMS.get(accepted(request.headers.get("accept", "")), "json")
    ids = [trace_id, *(traces or ())]
    chosen = chosen_tables(question, form, tables or ())
    if base and not question.compare_sides:
        raise BadAnalysisRequest(f"{name} does not compare two sides, and takes no `base`.")
    selection_of_base = _selection_of_base(base, base_selection, selection)
    groups = services.group_operations
    await groups.settle([*ids, *(base or ())], wait)
    base_ids = dict.fromkeys(base_id for reference in base or () for base_id in groups.side(reference))
    if base or not question.compare_sides:  # otherwise, each trace is a side
        ids = list(dict.fromkeys(ids))
    sides = await asyncio.to_thread(
        of_cycles,
        [source_of(services, source_id, selection) for source_id in ids],
        [source_of(services, base_id, selection_of_base, is_base=True) for base_id in base_ids],
        cycle,
        base_cycle,
        lambda trace: trace.whole_summary,
    )
    sources = [source for side in sides for source in side]
    etag = _etag(sources, name, parameters, [form, *chosen, limit, offset])
    headers = {"ETag": f'"{etag}"', "Cache-Control": "private, no-cache", "Vary": "Accept"}
    if form not in WHOLE_FORMS:
        headers |= {"Tracedock-Table": chosen[0], "Tracedock-Tables": ", ".join(question.tables)}
    if has_current(request, etag):
        return Response(status_code=304, headers=headers)
    pieces = services.analyses.answer(
        name, parameters, sources, form=form, tables=chosen, limit=limit, offset=offset,
        client=" ".join(identity(request)),
    )  # fmt: skip
    return ProcessOutput(pieces, MEDIA_TYPES[form], headers)


def _selection_of_base(base: list[str] | None, text: str | None, selection: Selection | None) -> Selection | None:
    """Return the selection of the base: that of the other side, unless it has its own.

    Raises:
        BadAnalysisRequest: there is no base.
        BadSelection: the text is not a selection.
    """
    if text is None:
        return selection
    if not base:
        raise BadAnalysisRequest("`base_selection` selects events of the base: name the base with `base`.")
    parsed = Selection.parsed(text)
    return parsed if parsed.as_dict() else None


def _etag(sources: list[AnalysedTrace], name: str, parameters: dict[str, Any], shown: list[str | int | None]) -> str:
    """Return the ETag of an answer; `shown` has its format, its tables and its rows."""
    selections = {source.is_base: source.selection and source.selection.as_dict() for source in sources}
    traces = [
        (
            *(str(source.columns), source.is_base, [str(file.path) for file in source.execution_traces]),
            [str(beside.columns) for beside in source.step_traces],
        )
        for source in sources
    ]
    key = [_SERVER_RUN, traces, [*selections.items()], name, parameters, shown]
    return hashlib.sha256(orjson.dumps(key)).hexdigest()[:32]

"""``/traces/{id}/analysis``: questions that are often asked, answered from columns."""

import hashlib
import inspect
import secrets
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response

from service.analysis.answers import parameters_of, question_of
from service.analysis.catalogue import QUESTIONS
from service.analysis.question import Question
from service.http import shapes
from service.http.authentication import identity
from service.http.members import settle_all, side_of
from service.http.parameters import PathValues, also_takes
from service.http.routes.download import Export
from service.http.routes.traces import Wait
from service.http.selection_parameters import Chosen, chosen_selection
from service.http.services import Parts, Services
from service.http.tables import ARROW, CSV, JSON, accepted
from service.trace.errors import BadQuestion
from service.trace.selection import Selection

RANKS_MAX = 4096
"""Traces that are asked at once."""

Form = Literal["json", "csv", "arrow"]
_FORMS: dict[str, Form] = {JSON: "json", CSV: "csv", ARROW: "arrow"}
_MEDIA_TYPES = {form: media_type for media_type, form in _FORMS.items()}
_OTHERS = frozenset({*inspect.signature(chosen_selection).parameters, "traces", "base", "table", "format", "wait"})

_SERVER = secrets.token_hex(8)
"""A ready trace does not change, but the next server may answer otherwise."""

router = APIRouter(prefix="/traces", tags=["analysis"])


def _asked(parts: Services, trace_id: str, selection: Selection | None, *, is_base: bool = False) -> dict[str, Any]:
    trace = parts.ready_trace(trace_id)
    return {
        "is_base": is_base,
        "columns": str(parts.folder.columns_of(trace.id)),
        "summary": trace.summary,
        "selection": None if selection is None else selection.as_dict(),
        "name": trace.name,
    }


@router.get("/{trace_id}/analysis", summary="What can be asked of a trace", responses={200: {"model": shapes.Analyses}})
def list_analyses(trace_id: str, request: Request, parts: Parts, selection: Chosen) -> Response:
    """Each analysis with its tables and parameters, and why it does not apply, where it does not."""
    pieces = parts.analyses.applicable(_asked(parts, trace_id, selection), client=" ".join(identity(request)))
    return Export(pieces, _MEDIA_TYPES["json"], {})


async def ask(  # noqa: PLR0913, PLR0917 - FastAPI takes the parameters of a request so
    name: str,
    trace_id: str,
    request: Request,
    parts: Parts,
    selection: Chosen,
    traces: Annotated[
        list[str] | None, Query(max_length=RANKS_MAX, description="further traces: the other ranks of the run")
    ] = None,
    base: Annotated[
        list[str] | None,
        Query(max_length=RANKS_MAX, description="of `compare`: ids of the traces, or of the group, to compare with"),
    ] = None,
    wait: Wait = 0,
    table: Annotated[
        str | None, Query(description="of `csv` and `arrow`: which of the tables; by default the first")
    ] = None,
    form: Annotated[Form | None, Query(alias="format", description="instead of an `Accept` field")] = None,
) -> Response:
    """An answer; ``skipped`` tells of which ranks there is none, and why. Who has it already gets a 304.

    JSON has all tables. ``csv`` and ``arrow`` have one, which ``Tracedock-Table`` names, of ``Tracedock-Tables``.

    ``compare`` takes exactly two sides: the traces of ``base``, and all others; of two traces without ``base``, the
    first is the base. With ``wait``, traces that are not ready are waited for.
    """
    question = question_of(name)
    told = {key: value for key, value in request.query_params.items() if key not in _OTHERS}
    parameters = parameters_of(question, told)
    form = form or _FORMS.get(accepted(request.headers.get("accept", "")), "json")
    ids = [trace_id, *(traces or ())]
    if table and form == "json":
        raise BadQuestion("`table` is for csv and arrow, which have one table; JSON has all.", known=[*question.tables])
    if base and not question.compared:
        raise BadQuestion(f"{name} is not about two sides, and takes no `base`.")
    await settle_all(parts, [*ids, *(base or ())], wait)
    base_ids = [one for each in base or () for one in side_of(parts, each)]
    wanted = [_asked(parts, one, selection) for one in ids]
    wanted += [_asked(parts, one, selection, is_base=True) for one in base_ids]
    asked = (
        [(one["columns"], one["is_base"]) for one in wanted],
        wanted[0]["selection"],
        name,
        parameters.model_dump(mode="json"),
    )
    tag = hashlib.sha256(orjson.dumps([_SERVER, *asked, form, table])).hexdigest()[:32]
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache", "Vary": "Accept"}
    headers |= {} if form == "json" else _tables_of(question, table)
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    pieces = parts.analyses.answer(
        name, parameters.model_dump(mode="json"), wanted, form=form, table=table, client=" ".join(identity(request))
    )
    return Export(pieces, _MEDIA_TYPES[form], headers)


def _tables_of(question: Question, table: str | None) -> dict[str, str]:
    """Header fields that name the table of an answer, and all that there are."""
    chosen = table or next(iter(question.tables))
    if chosen not in question.tables:  # it is refused when the answer is known
        return {}
    return {"Tracedock-Table": chosen, "Tracedock-Tables": ", ".join(question.tables)}


def _add(question: Question) -> None:
    """A route for a question, so that its parameters are documented."""

    @also_takes(lambda _: question.parameters.model_fields)
    async def asked(*args: Any, **values: Any) -> Response:
        return await ask(question.name, *args, **values)

    signature = inspect.signature(ask)
    asked.__signature__ = signature.replace(  # type: ignore[attr-defined] # as functools.wraps does it
        parameters=[one for one in signature.parameters.values() if one.name != "name"]
    )
    schema = question.parameters.model_json_schema().get("properties", {})
    router.add_api_route(
        f"/{{trace_id}}/analysis/{question.name}",
        asked,
        name=f"analysis {question.name}",
        summary=question.answers,
        description=question.definition,
        response_class=Response,
        responses={200: {"model": shapes.Answer, "content": {media_type: {} for media_type in (CSV, ARROW)}}},
        openapi_extra={
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "required": False,
                    "description": told.get("description", ""),
                    "schema": {key: value for key, value in told.items() if key not in {"title", "description"}},
                }
                for name, told in schema.items()
            ]
        },
    )


for one in QUESTIONS.values():
    _add(one)


def parameters_of_named(path: PathValues) -> Iterable[str]:
    """The names of the parameters of the analysis that a path names; raises `UnknownQuestion`."""
    return question_of(path["name"]).parameters.model_fields


@router.get("/{trace_id}/analysis/{name}", include_in_schema=False)
@also_takes(parameters_of_named)
def no_such_analysis(name: str) -> None:
    """A problem: there is no analysis of that name."""
    question_of(name)

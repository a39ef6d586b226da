"""``/datasets``: the datasets of `tracedock fleet` that the server shows, and questions about their runs."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Query, Request, Response

from service.analysis.forms import WHOLE_FORMS
from service.fleet.questions.catalogue import QUESTIONS, question_of
from service.fleet.questions.question import FleetQuestion, chosen_tables, parameters_of
from service.http import shapes
from service.http.authentication import identity
from service.http.dataset_presenters import dataset_in_brief, dataset_object
from service.http.declarations import ROUTE_PATH
from service.http.openapi import fragments
from service.http.parameters import PathValues, also_takes
from service.http.resource_parameters import DatasetName, Limit, RunName
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.analysis import FORMS, MEDIA_TYPES, Form, Offset, RowLimit, Tables
from service.http.routes.download import ProcessOutput
from service.http.services import ServicesDep
from service.http.tables import ARROW, CSV, JSON, accepted
from service.jobs.children.tasks.datasets import FleetQuestionTask

router = ApiRouter(prefix="/datasets", tags=["datasets"])

_COMMON_PARAMETERS = frozenset({"table", "limit", "offset", "format"})
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The tables, in the format that `format` or `Accept` names",
        "model": shapes.FleetAnswer | shapes.FleetAnswerInColumns,
        "content": fragments.content({JSON: {}, CSV: fragments.CSV_ROWS, ARROW: fragments.ARROW_STREAM}),
        "headers": fragments.header_fields(
            {
                "Tracedock-Table": "the table that CSV or Arrow has",
                "Tracedock-Tables": "the names of all tables of the question",
            }
        ),
    }
}


@router.get("", summary="List the datasets that the server shows", responses={200: {"model": shapes.Datasets}})
async def list_datasets(request: Request, services: ServicesDep) -> Response:
    """Return each dataset of `TRACEDOCK_DATASETS` with its state, in their order there."""
    datasets = services.datasets
    client = " ".join(identity(request))
    reports = await asyncio.gather(*(datasets.report(name, client=client) for name in datasets.locations))
    briefs = [
        dataset_in_brief(name, location, report)
        for (name, location), report in zip(datasets.locations.items(), reports, strict=True)
    ]
    return json_response(shapes.Datasets(datasets=briefs))


@router.get("/{dataset}", summary="Describe a dataset", responses={200: {"model": shapes.Dataset}})
async def get_dataset(
    dataset: DatasetName,
    request: Request,
    services: ServicesDep,
    limit: Limit = 50,
    after: Annotated[str, Query(max_length=64, description="`next` of the page of failures before")] = "",
) -> Response:
    """Return a dataset with its runs, its ingests, and a page of the sources that failed, each with the reason.

    ``next`` is `after` of the following page of failures, or null. An ingest that runs tells how far it is every two
    seconds; one that is silent for long is `stopped`.
    """
    client = " ".join(identity(request))
    report = await services.datasets.report(dataset, failures=limit, after=after, client=client)
    return json_response(dataset_object(dataset, services.datasets.location(dataset), report))


@router.get(
    "/{dataset}/runs/{run:path}/questions",
    summary="List the questions about a run",
    responses={200: {"model": shapes.FleetQuestions}},
)
def list_questions(dataset: DatasetName, run: RunName, services: ServicesDep) -> Response:
    """Return each question with its definition, its parameters and its tables. All apply to each run."""
    services.datasets.location(dataset)
    return json_response({"run": run, "questions": [_described(question) for question in QUESTIONS.values()]})


def _described(question: FleetQuestion) -> dict[str, Any]:
    return {
        "name": question.name,
        "answers": question.short_question,
        "definition": question.definition,
        "source": question.source,
        "parameters": question.parameters.model_json_schema().get("properties", {}),
        "tables": question.tables,
    }


def parameters_of_path(path: PathValues) -> Iterable[str]:
    """Return the parameters of the question whose name is in a path; raises `UnknownQuestion`."""
    return question_of(path["name"]).parameters.model_fields


@router.get(
    "/{dataset}/runs/{run:path}/questions/{name}",
    summary="Answer a question about a run",
    response_class=Response,
    responses=_ANSWERS,
)
@also_takes(parameters_of_path)
async def answer_fleet_question(  # noqa: PLR0913, PLR0917 - FastAPI passes each request parameter as an argument
    dataset: DatasetName,
    run: RunName,
    name: str,
    request: Request,
    services: ServicesDep,
    tables: Tables = None,
    form: Annotated[Form | None, Query(alias="format", description="takes precedence over the `Accept` field")] = None,
    limit: RowLimit = None,
    offset: Offset = 0,
) -> Response:
    """Return the answer that `tracedock fleet ask` gives.

    JSON has all tables, or those that ``table`` names; so has ``format=columns``, with an array of values for each
    column instead of rows. CSV and Arrow have one table: the header ``Tracedock-Table`` has its name.
    """
    question = question_of(name)
    request.scope[ROUTE_PATH] = request.scope["route"].path.replace("{name}", name)
    values = {key: value for key, value in request.query_params.items() if key not in _COMMON_PARAMETERS}
    parameters = parameters_of(question, values).model_dump(mode="json")
    form = form or FORMS.get(accepted(request.headers.get("accept", "")), "json")
    chosen = chosen_tables(question, form, tables or ())
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept"}
    if form not in WHOLE_FORMS:
        headers |= {"Tracedock-Table": chosen[0], "Tracedock-Tables": ", ".join(question.tables)}
    task = FleetQuestionTask(services.datasets.location(dataset), name, run, parameters, form, chosen, limit, offset)
    pieces = services.datasets.answer(task, " ".join(identity(request)))
    return ProcessOutput(pieces, MEDIA_TYPES[form], headers)

"""Completes the document that FastAPI derives: what all operations share, and what makes generated clients good.

It is built for its first request, not at the start of the server.
"""

from collections.abc import Iterator, Sequence

from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.routing import BaseRoute

from service.http import shapes
from service.http.authentication import cookie_name
from service.http.declarations import Declaration, declaration_of
from service.http.hosts import SAFE
from service.http.openapi.analyses import describe_analyses
from service.http.openapi.fragments import PROBLEM, Json, described, header_fields, header_parameter
from service.http.openapi.sharing import share_enums, share_parameters
from service.http.openapi.tidying import tidied
from service.http.problems import problem_kinds
from service.http.routes.listener import ListenerChoice
from service.http.routes.traces import TraceChange

LICENSE = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
SERVERS = [{"url": "/", "description": "the server that sends this document"}]
DESCRIPTION = """\
Tracedock keeps PyTorch profiler traces, analyses them, runs SQL on them and opens them in Perfetto.

**Start**: `uploadTrace` sends a file; `wait` answers once it is read. Then `runQuery` runs SQL on it, and
`analyzeTemporalBreakdown` and its siblings analyse it. Times are integers in ns. Integers are exact, and may be larger
than 2^53.

**Selections** name a part of a trace. Requests take them as query parameters, like `steps=3`, or as the model
`Selection` in a body, or as its JSON in the parameter `selection`.

**Errors** are `application/problem+json` (RFC 9457), a `Problem` with a stable `code`.

**Long operations** answer 202 with a `Job`; `getJob` with `wait` answers once it has ended.

**Tokens**: a server that other machines can reach needs one in `Authorization: Bearer`. A browser gets a cookie for it
at `/login`, which the API accepts, too. A token has the scope `read` or `write`. Operations that need `write` say so.

A query parameter that an operation does not have is refused.
"""
TAGS = {
    "traces": "Upload, list, describe, change, download and delete traces.",
    "uploads": "Upload large files in chunks, which survive lost connections: the protocol tus 1.0.",
    "import": "Make traces of files on the server's disk.",
    "groups": "The ranks of a run: list, describe, analyse, merge and delete them together.",
    "attachments": "Files that are kept beside a trace or a run: execution traces and reports of profilers.",
    "datasets": "Datasets of `tracedock fleet`: the progress of their ingests, and questions about their runs.",
    "baselines": "Names of the traces and groups that others are compared with.",
    "analysis": "The built-in analyses of a trace, or of several.",
    "reports": "What the analyses say, in one file.",
    "query": "SQL on a trace.",
    "sessions": "The engines that run SQL and the Perfetto UI.",
    "split and merge": "Make traces from traces.",
    "jobs": "Work in the background: list, follow and cancel it.",
    "perfetto": "Open traces in the Perfetto UI, and serve one to Perfetto's own tools.",
    "access": "The caller's token.",
    "health": "The state of the server, for balancers and monitors.",
}
_WRITE_NOTE = "Needs a token with the scope `write`."
_IDEMPOTENCY_KEY = header_parameter(
    "Idempotency-Key",
    "a text of at most 255 characters, chosen by the client: the request can be repeated with it for a day, and is"
    " handled once",
    {"type": "string", "minLength": 1, "maxLength": 255},
)
_PROBLEMS = {
    "401": ("Unauthorized", "A valid token is required"),
    "422": (
        "Unprocessable",
        "A parameter or a value is not accepted; `code` is the reason",
    ),
    "4XX": ("Refused", "The request can't be served; `code` is the reason"),
    "502": ("WorkerEnded", "A process that worked on the request ended, such as an engine"),
    "503": ("Unavailable", "Unavailable for now; retry after `retry_after_s` if it is given"),
    "504": ("DeadlineExceeded", "The request took longer than its deadline"),
    "507": ("NoRoom", "The disk or the quota has no room"),
}
"""For the statuses of errors, the name and the description of their response."""
_MONITOR_PROBLEMS = ("401", "422", "4XX")
"""The statuses of errors of operations outside of the API, which are for monitors; public ones have no 401."""
_ALIASES = {
    "Cell": "A value in a table. Integers are exact, and may be larger than 2^53.",
    "ParameterValue": "The value of a parameter of an analysis.",
}
"""Descriptions of schemas that are aliases, which have no docstring."""
_WITH_NULLS: tuple[type[BaseModel], ...] = (shapes.QueryResult, ListenerChoice, TraceChange)
"""Models whose examples have nulls, which FastAPI leaves out."""
_OF_FASTAPI = ("HTTPValidationError", "ValidationError")
"""Schemas of responses that the service never sends."""


def complete(document: Json, routes: Sequence[BaseRoute], port: int) -> Json:
    """Complete the document that FastAPI has derived.

    Args:
        document: the document, which is used up.
        routes: the routes of the app.
        port: the port of the server, for the name of the cookie.

    Returns:
        The complete document.
    """
    endpoints = {
        route.unique_id: route.endpoint
        for route in iter_route_contexts(routes)
        if isinstance(route.original_route, APIRoute)
    }
    for path, method, operation in _operations(document):
        declaration = declaration_of(endpoints[operation["operationId"]]) or Declaration(
            "read" if method.upper() in SAFE else "write"
        )
        _complete_operation(operation, declaration, is_api=path.startswith("/api/"))
    describe_analyses(document)
    document["info"] |= {"description": DESCRIPTION, "license": LICENSE}
    document |= {
        "servers": SERVERS,
        "components": {
            "schemas": _schemas(document["components"]["schemas"]),
            "responses": {name: _problem_response(status, text) for status, (name, text) in _PROBLEMS.items()},
            "securitySchemes": _security_schemes(port),
        },
        "security": [{"token": []}, {"session": []}, {}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
    }
    complete_document: Json = share_parameters(share_enums(tidied(document)))
    components = complete_document["components"]
    components["schemas"] = dict(sorted(components["schemas"].items()))
    return complete_document


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _complete_operation(operation: Json, declaration: Declaration, *, is_api: bool) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    is_public = declaration.scope == "public"
    statuses = _PROBLEMS if is_api else _MONITOR_PROBLEMS[is_public:]
    responses |= {
        status: {"$ref": f"#/components/responses/{_PROBLEMS[status][0]}"}
        for status in statuses
        if status not in responses
    }
    if is_public:
        operation["security"] = []
    elif declaration.scope == "write":
        operation["description"] = f"{operation.get('description', '')}\n\n{_WRITE_NOTE}".lstrip()
    if declaration.idempotent:
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)


def _schemas(schemas: Json) -> Json:
    """Return the schemas of FastAPI, without those of its own errors, and with those of ours."""
    problem = shapes.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    ours = problem.pop("$defs") | {"Problem": problem}
    ours["ErrorCode"] = _error_code()
    merged: Json = {name: schema for name, schema in schemas.items() if name not in _OF_FASTAPI} | ours
    for model in _WITH_NULLS:
        merged[model.__name__]["examples"] = model.model_json_schema()["examples"]
    for name, text in _ALIASES.items():
        merged[name] = described(text, merged[name])
    return merged


def _error_code() -> Json:
    """Return the schema of codes. It is no enum, because clients must accept the codes of later versions."""
    kinds = problem_kinds()
    listed = "\n".join(f"- `{kind.code}` ({kind.status}): {kind.title}" for kind in kinds)
    return {
        "type": "string",
        "description": f"The stable name of a kind of error. Later versions may have further ones.\n\n{listed}",
        "examples": ["unknown_trace"],
        "x-extensible-enum": list(dict.fromkeys(kind.code for kind in kinds)),
    }


def _problem_response(status: str, text: str) -> Json:
    response: Json = {
        "description": text,
        "content": PROBLEM,
    }
    if status == "401":
        response["headers"] = header_fields({"WWW-Authenticate": "`Bearer`"})
    if status in ("4XX", "503"):
        response["headers"] = header_fields({"Retry-After": "seconds to wait before the request is repeated"})
    return response


def _security_schemes(port: int) -> Json:
    return {
        "token": described(
            "a token of `tracedock token add`, or that of `TRACEDOCK_TOKEN`. A server without tokens needs none",
            {"type": "http", "scheme": "bearer"},
        ),
        "session": described(
            "the login of a browser, from `POST /login`. Requests that are not GET, HEAD or OPTIONS also need the"
            " `Origin` of a page of this server",
            {"type": "apiKey", "in": "cookie", "name": cookie_name(port)},
        ),
    }

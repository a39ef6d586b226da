"""The OpenAPI document is valid, complete, and such that generators make good clients of it."""

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from service.analysis.catalogue import QUESTIONS
from service.app import Application
from service.http.openapi.analyses import operation_id
from service.http.problems import problem_kinds
from service.settings import Settings
from service.store.tokens import Scope, Tokens
from tests import openapi
from tests.server import Server

Json = dict[str, Any]
TOKEN = "a-token-of-the-tests"
SAFE = ("GET", "HEAD", "OPTIONS")
OPERATIONS = [
    *("askDrift", "askKernelOutliers", "askLastRanks", "askSlowRanks", "askStepMatrix", "askStepOutliers"),
    *("attachToGroup", "attachToTrace", "deleteAttachment", "downloadAttachment", "getAttachment"),
    *("getAttachmentTables", "matchAttachment", "listGroupAttachments", "listTraceAttachments"),
    *("beginDirectUpload", "beginUpload", "cancelJob", "changeGroup", "changeTrace", "checkHealth"),
    *("checkReadiness", "closeSession", "completeDirectUpload", "createGroup", "deleteBaseline", "deleteGroup"),
    *("deleteTrace", "downloadTrace", "endDirectUpload", "endImport", "endUpload", "followJob", "getAccess"),
    *("getBaseline", "getDataset", "getDirectUpload", "getEnvelope", "getGroup", "getGroupReport", "getImport"),
    "getJob",
    *(
        "getListener",
        "getMetrics",
        "getSession",
        "getSlice",
        "getTrace",
        "getTraceReport",
        "getUpload",
        "getUploadOffset",
    ),
    *(
        "getUploadOptions",
        "importTraces",
        "listAnalyses",
        "listBaselines",
        "listDatasets",
        "listGroupAnalyses",
        "listGroups",
    ),
    *(
        "listImports",
        "listJobs",
        "listLibrary",
        "listQuestions",
        "listSessions",
        "listTraces",
        "mergeGroup",
        "mergeTraces",
    ),
    *("openPerfetto", "openSession", "overlayTrace", "overrideUploadMethod", "runQuery", "setBaseline"),
    *("setListener", "splitTrace", "uploadChunk", "uploadTrace"),
]
"""The ids of all operations but analyses. Generated clients name functions after them: a change breaks programs."""
OPEN = {
    "#/components/schemas/Analysis/properties/parameters": "a JSON Schema for each parameter",
    "#/components/schemas/FleetQuestion/properties/parameters": "a JSON Schema for each parameter",
    "#/components/schemas/Envelope": "has the keys that the program that wrote the trace chose",
    "#/components/schemas/Error": "errors have fields of their own",
    "#/components/schemas/Job/properties/request": "its keys depend on the kind of job",
    "#/components/schemas/JobResult": "older versions of the service may have recorded more",
    "#/components/schemas/Problem": "errors have fields of their own",
    "#/paths/~1api~1v1~1traces~1{trace_id}~1download/get/responses/200/content/application~1json/schema":
        "the document of a trace has the keys that the program that wrote it chose",
}  # fmt: skip
"""The schemas that allow any value or any key, each with the reason."""
_VALUES = frozenset({"default", "examples", "enum", "const", "x-extensible-enum"})
_SCHEMA_KEYS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "const"})


@pytest.fixture(scope="module")
def document(server: Server) -> Json:
    return openapi.document_of(server)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that needs a token."""
    server = Server(tmp_path_factory.mktemp("guarded") / "data", token=TOKEN).start()
    yield server
    assert server.stop() == 0


def schemas_of(node: Any, place: str = "#", *, is_schema: bool = False) -> Iterator[tuple[str, Json]]:
    """Yield all schemas of a part of a document, each with its place."""
    if isinstance(node, list):
        for index, part in enumerate(node):
            yield from schemas_of(part, f"{place}/{index}", is_schema=is_schema)
    if not isinstance(node, dict):
        return
    if is_schema:
        yield place, node
    for key, value in node.items():
        there = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
        if key in _VALUES:
            continue
        if (is_schema and key == "properties") or (key == "schemas" and place.endswith("/components")):
            for name, schema in value.items():
                yield from schemas_of(schema, f"{there}/{name}", is_schema=True)
        else:
            yield from schemas_of(value, there, is_schema=is_schema or key == "schema")


# -- the document ----------------------------------------------------------------------------------------------------


def test_document_is_valid(document: Json) -> None:
    assert document["openapi"].startswith("3.1")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_document_has_a_description_a_license_a_server_and_tags(document: Json) -> None:
    assert document["info"]["license"] == {"name": "Apache 2.0", "identifier": "Apache-2.0"}
    assert document["servers"][0]["url"] == "/"
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    used = {tag for _, _, operation in openapi.operations(document) for tag in operation["tags"]}
    assert described == used
    known = {operation["operationId"] for _, _, operation in openapi.operations(document)}
    texts = json.dumps(
        [document["info"]["description"], [operation for _, _, operation in openapi.operations(document)]]
    )
    named = set(re.findall(r"`((?:upload|list|get|run|analyze)[A-Z]\w+)`", texts))
    assert named
    assert named <= known


def test_document_is_built_for_the_first_request_of_it() -> None:
    program = """
import sys
from service.app import Application
from service.settings import Settings
app = Application(Settings(data="unused")).app
assert app.openapi_schema is None
assert "service.http.openapi.document" not in sys.modules
assert app.openapi() is app.openapi()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_document_that_cannot_be_completed_is_not_sent_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application(Settings(data=Path("unused"))).app
    with monkeypatch.context() as patch:
        patch.setattr("service.http.openapi.document.describe_analyses", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            app.openapi()
    assert app.openapi()["components"]["securitySchemes"]


def test_server_behind_a_prefix_is_the_first_server_of_its_document() -> None:
    transport = httpx.ASGITransport(Application(Settings(data=Path("unused"))).app, root_path="/ours")

    async def servers() -> list[Json]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            document: Json = (await client.get("/openapi.json")).json()
        return list(document["servers"])

    assert [server["url"] for server in asyncio.run(servers())] == ["/ours", "/"]


# -- names -----------------------------------------------------------------------------------------------------------


def test_ids_of_operations_are_these_and_no_others(document: Json) -> None:
    ids = [operation["operationId"] for _, _, operation in openapi.operations(document)]
    analyses = [operation_id(name, subject) for name in QUESTIONS for subject in ("", "Group")]
    assert sorted(ids) == sorted([*OPERATIONS, *analyses])


def test_schemas_have_names_that_are_words(document: Json) -> None:
    names = document["components"]["schemas"]
    assert [name for name in names if not re.fullmatch(r"([A-Z][a-z0-9]+)+", name)] == []
    assert {"HTTPValidationError", "ValidationError", "State"}.isdisjoint(names)
    titles = [place for place, schema in schemas_of(document) if isinstance(schema.get("title"), str)]
    assert titles == []


def test_all_schemas_and_parameters_are_used(document: Json) -> None:
    text = json.dumps(document)
    for kind in ("schemas", "parameters", "responses"):
        for name in document["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in text, name


def test_choices_that_several_places_have_are_schemas_of_their_own(document: Json) -> None:
    inline = Counter(
        tuple(schema["enum"]) for place, schema in schemas_of(document) if "enum" in schema and place.count("/") > 3
    )
    assert [values for values, count in inline.items() if count > 1] == []


def test_parameters_that_several_operations_have_are_components(document: Json) -> None:
    inline = Counter(
        json.dumps(parameter, sort_keys=True)
        for _, _, operation in openapi.operations(document)
        for parameter in operation.get("parameters", ())
        if "$ref" not in parameter
    )
    shared = {parameter["name"] for parameter in document["components"]["parameters"].values()}
    for text, count in inline.items():
        assert count == 1 or json.loads(text)["name"] in shared, text


# -- descriptions ----------------------------------------------------------------------------------------------------


def test_every_property_is_described(document: Json) -> None:
    undescribed = [
        f"{place}/{name}"
        for place, schema in schemas_of(document)
        for name, values in schema.get("properties", {}).items()
        if not values.get("description")
    ]
    assert undescribed == []


def test_every_parameter_header_and_response_is_described(document: Json) -> None:
    undescribed = []
    for method, path, operation in openapi.operations(openapi.resolved(document)):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        for parameter in operation.get("parameters", ()):
            if not (parameter.get("description") and parameter["schema"].get("description")):
                undescribed += [f"{where}: {parameter['name']}"]
        for status, response in operation["responses"].items():
            if response.get("description") in {None, "", "Additional Response"}:
                undescribed += [f"{where}: {status}"]
            fields = response.get("headers", {}).items()
            undescribed += [f"{where}: {name}" for name, field in fields if not field.get("description")]
    assert undescribed == []


# -- types -----------------------------------------------------------------------------------------------------------


def test_no_schema_allows_anything_without_a_reason(document: Json) -> None:
    allowing = {
        place
        for place, schema in schemas_of(document)
        if not (_SCHEMA_KEYS & schema.keys())
        or schema.get("additionalProperties") is True
        or (schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys())
        or (schema.get("type") == "array" and not schema.get("items"))
    }
    assert allowing == set(OPEN)


def test_every_number_has_a_format(document: Json) -> None:
    formats = {"integer": {"int32", "int64"}, "number": {"double"}}
    for place, schema in schemas_of(document):
        kind = schema.get("type")
        if isinstance(kind, str) and kind in formats:
            assert schema.get("format") in formats[kind], place
            bounds = [schema[key] for key in ("minimum", "maximum", "exclusiveMaximum") if key in schema]
            assert kind == "number" or all(isinstance(bound, int) and abs(bound) < 1 << 63 for bound in bounds), place
    step = document["components"]["schemas"]["Step"]["properties"]
    assert step["start_ns"]["format"] == "int64"


def test_parameters_are_left_out_rather_than_null(document: Json) -> None:
    for _, path, operation in openapi.operations(openapi.resolved(document)):
        for parameter in operation.get("parameters", ()):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", ()), (path, parameter["name"])


def test_selection_is_the_same_model_everywhere(document: Json) -> None:
    schemas = document["components"]["schemas"]
    reference = "#/components/schemas/Selection"
    for name in ("QueryRequest", "SplitRequest", "OverlayRequest", "Trace", "TraceInBrief", "SplitPiece", "Session"):
        assert reference in json.dumps(schemas[name]["properties"]["selection"]), name


def test_uploads_have_binary_bodies(document: Json) -> None:
    bodies = {
        operation["operationId"]: list(operation["requestBody"]["content"].items())
        for _, _, operation in openapi.operations(document)
        if "application/json" not in operation.get("requestBody", {"content": {"application/json": 0}})["content"]
    }
    binary = {"schema": {"type": "string", "format": "binary"}}
    chunk = [("application/offset+octet-stream", binary)]
    assert bodies == {
        **{name: [("application/octet-stream", binary)] for name in ("uploadTrace", "attachToTrace", "attachToGroup")},
        "beginUpload": chunk,
        "uploadChunk": chunk,
        "overrideUploadMethod": chunk,
    }


@pytest.mark.parametrize(
    ("operation", "status", "kinds"),
    [
        ("runQuery", "200", ["json", "x-ndjson", "csv", "vnd.apache.arrow.stream"]),
        ("analyzeOperators", "200", ["json", "csv", "vnd.apache.arrow.stream"]),
        ("followJob", "200", ["event-stream"]),
        ("downloadTrace", "200", ["octet-stream", "gzip", "protobuf", "json", "vnd.apache.parquet"]),
        ("downloadTrace", "206", ["octet-stream", "vnd.apache.parquet", "byteranges"]),
        ("downloadTrace", "304", []),
        ("downloadTrace", "416", ["problem+json"]),
        ("downloadAttachment", "416", ["problem+json"]),
        ("analyzeGroupOperators", "304", []),
        ("getTraceReport", "200", ["html", "markdown"]),
        ("getMetrics", "200", ["plain"]),
        ("openPerfetto", "307", []),
        ("splitTrace", "202", ["json"]),
        ("runQuery", "202", ["json"]),
        ("getTrace", "4XX", ["problem+json"]),
    ],
)
def test_responses_have_their_media_types(operation: str, status: str, kinds: list[str], document: Json) -> None:
    by_id = {part["operationId"]: part for _, _, part in openapi.operations(openapi.resolved(document))}
    content = by_id[operation]["responses"][status].get("content", {})
    assert [kind.partition("/")[2] for kind in content] == kinds


# -- errors and access -----------------------------------------------------------------------------------------------


def test_every_error_is_a_problem(document: Json) -> None:
    for method, path, operation in openapi.operations(openapi.resolved(document)):
        errors = {status: response for status, response in operation["responses"].items() if status[0] in "45"}
        assert "4XX" in errors, (method, path)
        for status, response in errors.items():
            if path == "/readyz" and status == "503":
                continue
            schema = response["content"]["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, (method, path, status)


def test_codes_of_errors_are_listed(document: Json) -> None:
    code = document["components"]["schemas"]["ErrorCode"]
    assert set(code["x-extensible-enum"]) == {kind.code for kind in problem_kinds()}
    assert {"unknown_trace", "bad_request", "not_found", "internal", "too_slow"} <= set(code["x-extensible-enum"])
    for kind in problem_kinds():
        assert f"- `{kind.code}` ({kind.status}): {kind.title}" in code["description"]


def test_document_names_the_cookie_that_a_browser_receives(guarded: Server) -> None:
    schemes = openapi.document_of(guarded, TOKEN)["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    login = guarded.api.post(f"{guarded.url}/login", data={"token": TOKEN})
    assert list(login.cookies) == [schemes["session"]["name"]]
    guarded.api.cookies.clear()
    cookie = f"{schemes['session']['name']}={next(iter(login.cookies.values()))}"
    assert guarded.api.get("/access", headers={"Cookie": cookie}).json()["scope"] == "write"


def test_only_public_operations_answer_without_a_token(guarded: Server) -> None:
    document = openapi.document_of(guarded, TOKEN)
    assert document["security"] == [{"token": []}, {"session": []}, {}]
    public = []
    for method, path, operation in openapi.operations(document):
        where = guarded.url + re.sub(r"\{\w+\}", "0", path)
        answer = guarded.api.request(method, where, headers={"Tus-Resumable": "1.0.0"})
        if operation.get("security") == []:
            public.append(path)
            assert answer.status_code == 200, path
        else:
            assert answer.status_code == 401, (method, path)
            assert "401" in operation["responses"], (method, path)
    assert sorted(public) == ["/healthz", "/readyz"]


def test_operations_that_need_write_scope_say_so(tmp_path: Path) -> None:
    with closing(Tokens(tmp_path / "data" / "tokens.sqlite")) as tokens:
        secret = tokens.add("reader", Scope.READ)
    server = Server(tmp_path / "data").start()
    reader = {"Authorization": f"Bearer {secret}", "Tus-Resumable": "1.0.0"}
    try:
        for method, path, operation in openapi.operations(openapi.document_of(server, secret)):
            if method in SAFE:
                continue
            answer = server.api.request(method, server.url + re.sub(r"\{\w+\}", "0", path), headers=reader)
            refused = answer.status_code == 403 and answer.json()["code"] == "forbidden_scope"
            assert refused == ("Needs a token with the scope `write`." in operation["description"]), (method, path)
    finally:
        assert server.stop() == 0


def test_operations_that_accept_an_idempotency_key_say_so(document: Json) -> None:
    accepting = {
        operation["operationId"]
        for _, _, operation in openapi.operations(openapi.resolved(document))
        if any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", ()))
    }
    assert accepting == {
        *("uploadTrace", "beginUpload", "importTraces", "splitTrace", "mergeTraces", "createGroup", "mergeGroup"),
        "overlayTrace",
    }


def test_building_the_document_logs_no_warnings(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.command = (sys.executable, "-m", "service")  # which builds models at their first use
    server.start()
    assert httpx.get(f"{server.url}/openapi.json").status_code == 200
    assert server.stop() == 0
    assert "Warning" not in server.log_text()

"""The examples in the OpenAPI document are valid, and the server accepts and sends what they show."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests import openapi
from tests.conftest import DATA
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

Json = dict[str, Any]
RANKS = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in (0, 1)]
IDS = ("14d77f0f19d4", "5a41c02f9be7")
"""The ids of traces in the examples."""
SHOWN = {
    *("BaselineTarget", "GroupChange", "GroupMerge", "GroupRequest", "ImportRequest", "ListenerChoice", "MergeRequest"),
    *("NewDirectUpload", "OverlayRequest", "QueryRequest", "SplitRequest", "TraceChange"),
}
"""The bodies of requests, each of which has examples."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two ranks in a group, with files to import, and with a bucket, to which it sends nothing."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "roots" / "runs" / "first").mkdir(parents=True)
    shutil.copy(RANKS[0], folder / "roots" / "runs" / "first")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "a-key-of-this-test")
        server = Server(folder / "data", import_roots=folder / "roots", bucket="s3://traces/direct").start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def traces(server: Server) -> list[str]:
    return [server.upload(path)["id"] for path in RANKS]


@pytest.fixture(scope="module")
def gpu_trace(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_trace(tmp_path_factory.mktemp("gpu") / "gpu.pt.trace.json", TraceShape(steps=2))
    return str(server.upload(path)["id"])


@pytest.fixture(scope="module")
def document(server: Server) -> Json:
    return openapi.document_of(server)


def bodies(document: Json) -> dict[str, tuple[str, str, Json]]:
    """Return the method, path and description of the operation that takes each model in its body."""
    return {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]: (
            method, path, operation,
        )
        for method, path, operation in openapi.operations(document)
        if "application/json" in operation.get("requestBody", {"content": {}})["content"]
    }  # fmt: skip


def test_every_json_body_has_examples(document: Json) -> None:
    assert set(bodies(document)) == SHOWN
    for name in SHOWN:
        assert document["components"]["schemas"][name]["examples"], name


def test_examples_match_their_schemas(document: Json) -> None:
    registry = Registry().with_resource("", DRAFT202012.create_resource(document))
    examples = [
        (name, example)
        for name, schema in document["components"]["schemas"].items()
        for example in schema.get("examples", ())
    ]
    assert {"Problem", "QueryResult", "ErrorCode", *SHOWN} <= {name for name, _ in examples}
    for name, example in examples:
        schema = {"$ref": f"#/components/schemas/{name}"}
        validator = OAS31Validator(schema, registry=registry, _resolver=registry.resolver())
        assert [error.message for error in validator.iter_errors(example)] == [], (name, example)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_server_accepts_the_examples_of_a_body(
    name: str, document: Json, traces: list[str], gpu_trace: str, server: Server
) -> None:
    subject = gpu_trace if name == "OverlayRequest" else traces[0]
    method, path, operation = bodies(openapi.resolved(document))[name]
    waits = any(parameter["name"] == "wait" for parameter in operation.get("parameters", ()))
    for example in document["components"]["schemas"][name]["examples"]:
        group = server.api.post("/groups", json={"name": f"{name} {json.dumps(example)}"[:200], "traces": traces})
        where = path.replace("{trace_id}", subject).replace("{group_id}", group.json()["id"]).replace("{name}", "main")
        text = json.dumps(example).replace(IDS[0], traces[0]).replace(IDS[1], traces[1])
        answer = server.api.request(
            method, server.url + where, content=text, params={"wait": PATIENCE_S} if waits else {}
        )
        assert answer.status_code in (200, 201, 202), (example, answer.text)
        if answer.status_code == 202:
            assert answer.json()["state"] == "done", (example, answer.text)


def test_example_of_a_problem_is_what_the_server_sends(document: Json, server: Server) -> None:
    [example] = document["components"]["schemas"]["Problem"]["examples"]
    answer = server.api.get(f"/traces/{IDS[0]}")
    assert (answer.status_code, answer.json()) == (example["status"], example)


def test_example_of_a_result_is_what_the_server_sends(document: Json, traces: list[str], server: Server) -> None:
    [example] = document["components"]["schemas"]["QueryResult"]["examples"]
    answer = server.query(traces[0], "SELECT 'aten::mm' AS name, 9007199254740993 AS n").json()
    assert answer | {"elapsed_ms": 0} == example | {"elapsed_ms": 0}

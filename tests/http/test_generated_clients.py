"""Clients that generators make of the OpenAPI document upload, query, analyse and split on a real server."""

import asyncio
import base64
import gzip
import importlib
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests import openapi
from tests.conftest import DATA
from tests.docs.pages import ROOT, blocks
from tests.server import Server
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.system

TRACE = DATA / "cpu_train_steps.pt.trace.json.gz"
TOKEN = "a-token-of-the-tests"
PACKAGE, MODELS = "tracedock_api", "tracedock_models"


@pytest.fixture(scope="module")
def generators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the generators' commands."""
    folder = tmp_path_factory.mktemp("generators")
    venv.create(folder, with_pip=True)
    pins = DATA / "openapi_generators.txt"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", str(pins)]
    subprocess.run([folder / "bin" / "python", *install], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def work(generators: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands of the documents generate."""
    folder = tmp_path_factory.mktemp("generated")
    [block] = [block for block in blocks((ROOT / "docs" / "api.md").read_text()) if "datamodel-codegen" in block.text]
    lines = [line for line in block.text.splitlines() if not line.startswith("pip install")]
    lines = [re.sub("^openapi-python-client generate", r"\g<0> --fail-on-warning", line) for line in lines]
    script = "\n".join(lines).replace("http://127.0.0.1:8700", server.url)
    environment = os.environ | {"PATH": f"{generators}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def imported(work: Path) -> Iterator[Path]:
    """The folder, from which modules can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(work))
        yield work
        for name in [name for name in sys.modules if name.partition(".")[0] in (PACKAGE, MODELS)]:
            del sys.modules[name]


def part(name: str) -> Any:
    """Return a module of the generated package."""
    return importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)


@pytest.fixture(scope="module")
def client(imported: Path, server: Server) -> Iterator[Any]:
    with part("").Client(server.url, timeout=httpx.Timeout(PATIENCE_S)) as client:
        yield client


@pytest.fixture(scope="module")
def trace(client: Any) -> Any:
    upload = part("api.traces.upload_trace")
    with TRACE.open("rb") as file:
        answer = upload.sync_detailed(
            TRACE.name, client=client, body=part("types").File(payload=file), wait=PATIENCE_S, group="by a client"
        )
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/traces/{answer.parsed.id}"
    return answer.parsed


# -- openapi-python-client -------------------------------------------------------------------------------------------


def test_every_operation_has_a_function(imported: Path, server: Server) -> None:
    root: ModuleType = part("api")
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
        if not module.ispkg
    ]
    names = {module.__name__.rpartition(".")[2] for module in modules if hasattr(module, "sync_detailed")}
    ids = {operation["operationId"] for _, _, operation in openapi.operations(openapi.document_of(server))}
    assert names == {re.sub("([A-Z])", r"_\1", name).lower() for name in ids}


def test_uploaded_trace_is_a_model(trace: Any) -> None:
    models = part("models")
    assert isinstance(trace, models.Trace)
    assert trace.state is models.TraceState.READY
    assert trace.size == TRACE.stat().st_size
    assert trace.group.name == "by a client"
    assert trace.steps[0].end_ns > trace.steps[0].start_ns
    assert trace.selection is None


def test_query_returns_exact_rows(client: Any, trace: Any) -> None:
    body = part("models").QueryRequest(sql="SELECT 9223372036854775807 AS n, 'x' AS name, NULL AS none, 0.5 AS half")
    answer = part("api.query.run_query").sync(trace.id, client=client, body=body, wait=PATIENCE_S)
    assert answer.rows == [[(1 << 63) - 1, "x", None, 0.5]]
    assert [column.type_.value for column in answer.columns] == ["int", "string", "null", "double"]


def test_query_runs_on_a_selection(client: Any, trace: Any) -> None:
    models = part("models")
    selection = models.Selection(categories=["cpu_op"], steps=[trace.steps[0].number])
    body = models.QueryRequest(sql="SELECT count(*) FROM slice", selection=selection, args=models.EventArgs.NONE)
    some = part("api.query.run_query").sync(trace.id, client=client, body=body, wait=PATIENCE_S).rows
    body = models.QueryRequest(sql="SELECT count(*) FROM slice")
    whole = part("api.query.run_query").sync(trace.id, client=client, body=body, wait=PATIENCE_S).rows
    assert 0 < some[0][0] < whole[0][0]


def test_asynchronous_functions_answer_the_same(trace: Any, server: Server) -> None:
    body = part("models").QueryRequest(sql="SELECT 7")

    async def rows() -> Any:
        async with part("").Client(server.url, timeout=httpx.Timeout(PATIENCE_S)) as client:
            return (await part("api.query.run_query").asyncio(trace.id, client=client, body=body)).rows

    assert asyncio.run(rows()) == [[7]]


def test_analyses_return_tables_by_rows_and_by_columns(client: Any, trace: Any) -> None:
    models, operators = part("models"), part("api.analysis.analyze_operators")
    step = trace.steps[0].number
    by_rows = operators.sync(trace.id, client=client, steps=[step])
    by_columns = operators.sync(trace.id, client=client, steps=[step], format_=models.AnalysisFormat.COLUMNS)
    assert isinstance(by_rows, models.Answer)
    assert isinstance(by_columns, models.AnswerInColumns)
    rows = by_rows.tables["operators"].rows
    assert rows == [list(row) for row in zip(*by_columns.tables["operators"].values, strict=True)]
    assert len(rows) > 1
    group = part("api.groups.analyze_group_operators").sync(trace.group.id, client=client, steps=[step])
    assert group.tables["operators"].rows == rows


def test_answer_that_the_client_has_is_not_sent_again(client: Any, trace: Any) -> None:
    operators = part("api.analysis.analyze_operators")
    first = operators.sync_detailed(trace.id, client=client)
    second = operators.sync_detailed(trace.id, client=client, if_none_match=first.headers["etag"])
    assert (second.status_code, second.content) == (304, b"")


def test_split_makes_traces_of_a_selection(client: Any, trace: Any) -> None:
    models, split = part("models"), part("api.split_and_merge.split_trace")
    selection = models.Selection(categories=["cpu_op"], closure=models.Closure(metadata=False))
    plan = split.sync(trace.id, client=client, body=models.SplitRequest(selection=selection, by="step", dry_run=True))
    assert isinstance(plan, models.SplitPlan)
    body = models.SplitRequest(selection=selection, by=models.SplitBy.STEP)
    job = split.sync(trace.id, client=client, body=body)
    job = part("api.jobs.get_job").sync(job.id, client=client, wait=PATIENCE_S)
    assert (job.state, type(job.result)) == (models.JobState.DONE, models.JobResult)
    traces = [part("api.traces.get_trace").sync(name, client=client) for name in job.result.traces]
    assert [piece.events.kept for piece in traces] == [piece.events for piece in plan.pieces]
    assert all(piece.selection.categories == ["cpu_op"] and piece.parent == trace.id for piece in traces)
    assert traces[0].selection.closure.metadata is False
    events = part("api.jobs.follow_job").sync(job.id, client=client)
    assert json.loads(events.partition("data: ")[2].partition("\n")[0])["state"] == "done"


def test_chunks_make_a_trace(client: Any) -> None:
    content = gzip.decompress(TRACE.read_bytes())
    half = len(content) // 2
    name = base64.b64encode(b"chunks.json").decode()
    begun = part("api.uploads.begin_upload").sync_detailed(
        client=client,
        body=part("types").File(payload=io.BytesIO(content[:half])),
        upload_length=len(content), upload_metadata=f"filename {name}",
    )  # fmt: skip
    assert begun.status_code == 201
    upload_id = begun.headers["location"].rpartition("/")[2]
    assert part("api.uploads.get_upload").sync(upload_id, client=client).offset == half
    sent = part("api.uploads.upload_chunk").sync_detailed(
        upload_id, client=client, body=part("types").File(payload=io.BytesIO(content[half:])), upload_offset=half
    )
    assert sent.status_code == 204
    made = part("api.traces.get_trace").sync(sent.headers["tracedock-trace"], client=client, wait=PATIENCE_S)
    assert (made.name, made.size, made.state.value) == ("chunks.json", len(content), "ready")


def test_download_returns_the_uploaded_bytes(client: Any, trace: Any) -> None:
    download = part("api.traces.download_trace")
    assert download.sync(trace.id, client=client).payload.read() == TRACE.read_bytes()
    some = download.sync_detailed(trace.id, client=client, range_="bytes=2-5")
    assert (some.status_code, some.content) == (206, TRACE.read_bytes()[2:6])


def test_errors_are_problems_with_a_code(client: Any, trace: Any) -> None:
    models = part("models")
    unknown = part("api.traces.get_trace").sync("000000000000", client=client)
    assert isinstance(unknown, models.Problem)
    assert (unknown.status, unknown.code) == (404, "unknown_trace")
    refused = part("api.query.run_query").sync(trace.id, client=client, body=models.QueryRequest(sql="SELECT nothing"))
    assert (refused.status, refused.code) == (400, "sql_error")
    faulty = part("api.query.run_query").sync(trace.id, client=client, body=models.QueryRequest(sql=""))
    assert (faulty.code, faulty.faults[0].where) == ("bad_request", "body.sql")


def test_lists_are_followed_by_their_cursors(client: Any, trace: Any) -> None:
    models, list_traces = part("models"), part("api.traces.list_traces")
    ids, page = [], list_traces.sync(client=client, limit=1)
    assert isinstance(page, models.Traces)
    ids += [listed.id for listed in page.traces]
    while page.next_:
        page = list_traces.sync(client=client, limit=1, cursor=page.next_)
        ids += [listed.id for listed in page.traces]
    assert trace.id in ids
    assert len(ids) == len(set(ids))


def test_client_with_a_token_is_accepted_where_one_is_needed(imported: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "data", token=TOKEN).start()
    try:
        with part("").Client(server.url) as client:
            refused = part("api.access.get_access").sync(client=client)
        assert (refused.status, refused.code) == (401, "unauthorized")
        with part("").AuthenticatedClient(server.url, token=TOKEN) as client:
            access = part("api.access.get_access").sync(client=client)
        assert access.scope is part("models").TokenScope.WRITE
    finally:
        assert server.stop() == 0


def test_example_of_the_documents_runs(generators: Path, work: Path, server: Server) -> None:
    script = ROOT / "docs" / "examples" / "generated_client.py"
    command = [str(generators / "python"), str(script), server.url, str(TRACE)]
    environment = os.environ | {"PYTHONPATH": str(work)}
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith(f"{TRACE.name} ready ")
    assert len([line for line in lines if "['cpu_op']" in line]) > 1


# -- datamodel-codegen -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(imported: Path) -> Any:
    return importlib.import_module(MODELS)


def test_generated_models_upload_and_query(models: Any, server: Server) -> None:
    answer = server.api.put(f"/traces/{TRACE.name}", params={"wait": PATIENCE_S}, content=TRACE.read_bytes())
    trace = models.Trace.model_validate_json(answer.content)
    assert trace.state is models.TraceState.ready
    assert trace.created_at.tzinfo
    selection = models.Selection(categories=["cpu_op"])
    body = models.QueryRequest(sql="SELECT 9223372036854775807 AS n", selection=selection)
    text = body.model_dump_json(exclude_unset=True, by_alias=True)
    answer = server.api.post(f"/traces/{trace.id}/query", content=text, params={"wait": PATIENCE_S})
    result = models.QueryResult.model_validate_json(answer.content)
    assert result.model_dump()["rows"] == [[(1 << 63) - 1]]


def test_generated_models_split_and_read_analyses_and_errors(models: Any, server: Server) -> None:
    trace = server.upload(TRACE)["id"]
    body = models.SplitRequest(selection=models.Selection(categories=["cpu_op"]), by="step", dry_run=True)
    answer = server.api.post(f"/traces/{trace}/split", content=body.model_dump_json(exclude_unset=True))
    plan = models.SplitPlan.model_validate_json(answer.content)
    assert len(plan.pieces) > 1
    assert plan.pieces[0].selection.model_dump(exclude_unset=True)["categories"] == ["cpu_op"]
    answer = models.Answer.model_validate_json(server.api.get(f"/traces/{trace}/analysis/operators").content)
    assert answer.tables["operators"].rows
    problem = models.Problem.model_validate_json(server.api.get("/traces/000000000000").content)
    assert problem.model_dump()["code"] == "unknown_trace"


def test_generated_models_refuse_unknown_fields(models: Any) -> None:
    with pytest.raises(ValueError, match="made_up"):
        models.QueryRequest(sql="SELECT 7", made_up=1)

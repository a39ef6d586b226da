"""The server shows datasets: the progress of their ingests, and the answers of `tracedock fleet ask`."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.fleet.dataset import Dataset
from service.fleet.merging import merge_facts
from service.fleet.progress import STOPPED_S
from service.fleet.questions.catalogue import QUESTIONS
from service.fleet.record import FAILED
from service.jobs.datasets import locations_of
from service.store.locations.location import Location
from service.trace.errors import BadFleetRequest
from tests.fleet.test_questions import RANKS, add_rank
from tests.server import Server
from tests.store.locations.conftest import bucket, s3
from tests.traces import TraceShape, write_trace
from tests.waiting import until

__all__ = ["bucket", "s3"]

Json = dict[str, Any]
TRACEDOCK = str(Path(sys.executable).parent / "tracedock")
HOSTILE = "<img src=x onerror=window.broken=1>/ü"
FAILURES = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three runs, one of which has a hostile name, with facts in parts and outside, and failures."""
    folder = tmp_path_factory.mktemp("datasets") / "facts"
    dataset = Dataset.create(str(folder))
    records = [add_rank(dataset, run, rank) for run in ("first", "second", HOSTILE) for rank in range(RANKS)]
    merge_facts(dataset, records[:10], ())
    for number in range(FAILURES):
        error = {"code": "not_a_trace", "title": "It is not a trace", "detail": f"It is number {number}.", "offset": 7}
        changes: Json = {"key": f"cut-{number}", "source": f"/run/cut-{number}.json", "state": FAILED, "trace": ""}
        dataset.record(replace(records[0], error=error, attempts=2, worker="node1 77", **changes))
    return folder


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that shows the dataset, and one that is not there yet."""
    settings = {"datasets": f"{store}, {store.parent / 'later'}"}
    server = Server(tmp_path_factory.mktemp("server") / "data", **settings).start()
    yield server
    assert server.stop() == 0


def asked(store: Path | str, *arguments: str) -> bytes:
    """Return the output of `tracedock fleet ask`."""
    return subprocess.run([TRACEDOCK, "fleet", "ask", str(store), *arguments], check=True, capture_output=True).stdout


def dataset_of(server: Server, name: str, **params: Any) -> Json:
    answer = server.api.get(f"/datasets/{name}", params=params)
    assert answer.status_code == 200, answer.text
    document: Json = answer.json()
    return document


# -- the setting ------------------------------------------------------------------------------------------------------


def test_names_are_the_last_parts_of_paths() -> None:
    assert locations_of("/a/facts/, s3://b/run-7 ,gs://bucket,") == {
        "facts": "/a/facts", "run-7": "s3://b/run-7", "bucket": "gs://bucket"
    }  # fmt: skip
    assert locations_of("") == {}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [("/a/facts,s3://b/facts", "/a/facts and s3://b/facts are both named facts"), ("/", "/ has no last part")],
)
def test_ambiguous_names_are_refused_with_both_locations(text: str, refusal: str) -> None:
    with pytest.raises(BadFleetRequest, match=refusal):
        locations_of(text)


def test_server_with_ambiguous_names_does_not_start(tmp_path: Path) -> None:
    environment = os.environ | {"TRACEDOCK_DATASETS": "/a/facts,/b/facts"}
    command = [TRACEDOCK, "serve", "--port", "0", "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "/a/facts and /b/facts are both named facts" in ended.stderr


# -- state ------------------------------------------------------------------------------------------------------------


def test_list_has_each_dataset_with_its_state(server: Server, store: Path) -> None:
    facts, later = server.api.get("/datasets").json()["datasets"]
    assert (facts["name"], facts["location"], facts["state"]) == ("facts", str(store), "idle")
    assert (facts["runs_count"], facts["ranks"], facts["progress"]["done"]) == (3, 3 * RANKS, 3 * RANKS)
    assert (facts["progress"]["bytes_total"], facts["progress"]["reason"]) == (None, facts["reason"])
    assert "does not say what is still to be read" in facts["reason"]
    assert (later["name"], later["state"], later["read_at"]) == ("later", "unavailable", None)
    assert "has no dataset" in later["reason"]


def test_dataset_that_comes_later_is_shown_once_it_is_there(server: Server, store: Path) -> None:
    assert dataset_of(server, "later")["state"] == "unavailable"
    dataset = Dataset.create(str(store.parent / "later"))
    add_rank(dataset, "run-9", 0)
    until(lambda: dataset_of(server, "later")["state"] == "idle")
    assert [run["name"] for run in dataset_of(server, "later")["runs"]] == ["run-9"]
    dataset.location.remove("dataset.json")
    until(lambda: dataset_of(server, "later")["state"] == "unavailable")
    gone = dataset_of(server, "later")
    assert ([run["name"] for run in gone["runs"]], "has no dataset" in gone["reason"]) == (["run-9"], True)


def test_dataset_has_its_runs_and_pages_of_failures(server: Server) -> None:
    dataset = dataset_of(server, "facts", limit=2)
    assert {run["name"]: (run["done"], run["failed"], run["ranks"]) for run in dataset["runs"]} == {
        "first": (RANKS, FAILURES, RANKS), "second": (RANKS, 0, RANKS), HOSTILE: (RANKS, 0, RANKS)
    }  # fmt: skip
    first, second = dataset["failures"]
    assert (first["source"], first["attempts"], first["worker"]) == ("/run/cut-0.json", 2, "node1 77")
    assert (first["error"]["code"], first["error"]["detail"]) == ("not_a_trace", "It is number 0.")
    assert second["error"]["offset"] == 7
    rest = dataset_of(server, "facts", limit=2, after=dataset["next"])
    assert ([failure["source"] for failure in rest["failures"]], rest["next"]) == (["/run/cut-2.json"], None)


def test_unknown_dataset_is_refused_with_those_that_exist(server: Server) -> None:
    for path in ("", "/runs/first/questions", "/runs/first/questions/slow_ranks"):
        answer = server.api.get(f"/datasets/none{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_dataset")
        assert answer.json()["known"] == ["facts", "later"]


def test_server_without_datasets_lists_none(tmp_path: Path) -> None:
    own = Server(tmp_path / "data").start()
    assert own.api.get("/datasets").json() == {"datasets": []}
    assert own.stop() == 0


# -- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["first", "second", HOSTILE])
@pytest.mark.parametrize("name", QUESTIONS)
def test_answer_is_that_of_fleet_ask(server: Server, store: Path, name: str, run: str) -> None:
    values = ["--set", "base=second"] if name == "drift" else []
    params = {"base": "second"} if name == "drift" else {}
    answer = server.api.get(f"/datasets/facts/runs/{run}/questions/{name}", params=params)
    assert answer.status_code == 200, answer.text
    assert answer.content == asked(store, name, "--run", run, "--json", *values)


@pytest.mark.parametrize("form", ["csv", "arrow"])
def test_each_format_is_that_of_fleet_ask(server: Server, store: Path, form: str) -> None:
    answer = server.api.get("/datasets/facts/runs/first/questions/step_matrix", params={"format": form})
    assert answer.content == asked(store, "step_matrix", "--run", "first", "--format", form)


def test_parameters_tables_and_rows_are_chosen(server: Server, store: Path) -> None:
    path = "/datasets/facts/runs/first/questions/step_matrix"
    answer = server.api.get(path, params={"value": "total", "table": "steps", "limit": 2, "offset": 1}).json()
    whole = json.loads(asked(store, "step_matrix", "--run", "first", "--set", "value=total", "--json"))
    assert answer["tables"].keys() == {"steps"}
    assert answer["tables"]["steps"]["rows"] == whole["tables"]["steps"]["rows"][1:3]
    assert (answer["tables"]["steps"]["total"], answer["parameters"]) == (6, {"value": "total"})


def test_columns_have_the_values_of_the_rows(server: Server) -> None:
    path = "/datasets/facts/runs/first/questions/slow_ranks"
    rows = server.api.get(path).json()["tables"]["ranks"]["rows"]
    columns = server.api.get(path, params={"format": "columns"}).json()["tables"]["ranks"]["values"]
    assert [list(row) for row in zip(*columns, strict=True)] == rows


def test_csv_and_arrow_name_their_table(server: Server) -> None:
    path = "/datasets/facts/runs/first/questions/slow_ranks"
    answer = server.api.get(path, params={"table": "hosts"}, headers={"Accept": "text/csv"})
    assert answer.headers["Tracedock-Table"] == "hosts"
    assert answer.headers["Tracedock-Tables"] == "ranks, hosts"
    assert next(csv.reader(io.StringIO(answer.text)))[0] == "host"
    arrow = server.api.get(path, params={"format": "arrow"})
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == RANKS


@pytest.mark.parametrize(
    ("path", "status", "code", "known"),
    [
        ("none/questions/slow_ranks", 404, "unknown_run", "first"),
        ("first/questions/none", 404, "unknown_question", "step_matrix"),
        ("first/questions/step_matrix?value=all", 422, "bad_fleet_request", "value"),
        ("first/questions/step_matrix?valu=own", 422, "unknown_parameter", "value"),
        ("first/questions/step_matrix?table=none", 422, "bad_fleet_request", None),
        ("first/questions/slow_ranks?format=csv&table=ranks&table=hosts", 422, "bad_fleet_request", None),
        ("first/questions/drift?base=none", 404, "unknown_run", "second"),
        ("first/questions/last_ranks?collectives=99999999999999999999", 422, "bad_fleet_request", "collectives"),
        ("first/questions/step_outliers?score=inf", 422, "bad_fleet_request", "score"),
        (f"{'x' * 5000}/questions/slow_ranks", 404, "unknown_run", "first"),
    ],
)
def test_unknown_names_are_refused_with_what_exists(
    server: Server, path: str, status: int, code: str, known: str | None
) -> None:
    answer = server.api.get(f"/datasets/facts/runs/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert known is None or known in answer.json()["known"]


def test_questions_are_listed_with_definitions(server: Server) -> None:
    answer = server.api.get(f"/datasets/facts/runs/{HOSTILE}/questions").json()
    assert answer["run"] == HOSTILE
    assert [question["name"] for question in answer["questions"]] == [*QUESTIONS]
    assert all(question["definition"] and question["tables"] for question in answer["questions"])


def test_dataset_that_cannot_be_read_answers_nothing(server: Server, store: Path) -> None:
    (store.parent / "later" / "dataset.json").unlink(missing_ok=True)
    answer = server.api.get("/datasets/later/runs/x/questions/slow_ranks")
    assert (answer.status_code, answer.json()["code"]) == (503, "dataset_unavailable")
    assert "has no dataset" in answer.json()["detail"]


def test_new_facts_are_in_the_next_answer(server: Server, store: Path, tmp_path: Path) -> None:
    own = Server(tmp_path / "data", datasets=str(tmp_path / "growing")).start()
    dataset = Dataset.create(str(tmp_path / "growing"))
    path = "/datasets/growing/runs/first/questions/slow_ranks"
    for rank in range(2):
        record = add_rank(dataset, "first", rank)
        assert own.api.get(path).json()["tables"]["ranks"]["total"] == rank + 1
        merge_facts(dataset, [record], ())
    assert own.stop() == 0
    assert not [*(tmp_path / "data").rglob("*spill*")], "what the child had copied is gone"


def test_child_that_was_killed_starts_anew(server: Server) -> None:
    before = dataset_of(server, "facts")["runs"]
    [child] = server.children("tracedock datasets")
    child.kill()
    child.wait()
    assert dataset_of(server, "facts")["runs"] == before


# -- an ingest beside -------------------------------------------------------------------------------------------------


def folder_of_traces(folder: Path, ranks: int) -> Path:
    folder.mkdir()
    for rank in range(ranks):
        write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, world_size=ranks, steps=1, seed=rank))
    return folder


@pytest.mark.system
def test_ingest_beside_is_shown_and_stops_when_it_is_killed(tmp_path: Path) -> None:
    run = folder_of_traces(tmp_path / "run-7", 12)
    size = sum(path.stat().st_size for path in run.iterdir())
    server = Server(tmp_path / "data", datasets=str(tmp_path / "facts")).start()
    command = [TRACEDOCK, "fleet", "ingest", str(run), "--to", str(tmp_path / "facts"), "--mode", "here"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        until(lambda: dataset_of(server, "facts")["state"] == "ingesting")
        until(lambda: bool(dataset_of(server, "facts")["runs"]))
        process.send_signal(signal.SIGKILL)
    shown = dataset_of(server, "facts")
    assert (shown["progress"]["sources"], shown["progress"]["bytes_total"]) == (12, size)
    assert 0 < shown["runs"][0]["done"] <= 12
    until(lambda: dataset_of(server, "facts")["state"] == "stopped", within_s=STOPPED_S + 60)
    stopped = dataset_of(server, "facts")
    assert f"its process {process.pid} on" in stopped["progress"]["reason"]
    assert (stopped["progress"]["left_s"], stopped["progress"]["bytes_per_s"]) == (None, None)
    subprocess.run(command, check=True, capture_output=True)
    until(lambda: dataset_of(server, "facts")["state"] == "idle")
    done = dataset_of(server, "facts")
    assert (done["progress"]["done"], done["progress"]["bytes_done"], done["progress"]["left_s"]) == (12, size, 0)
    assert [ingest["state"] for ingest in done["ingests"]] == ["done"]
    assert server.stop() == 0


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dataset_in_a_bucket_answers_as_fleet_ask(bucket: Location, tmp_path: Path) -> None:
    run = folder_of_traces(tmp_path / "run-7", 3)
    url = f"{bucket.url}/facts"
    command = [TRACEDOCK, "fleet", "ingest", str(run), "--to", url, "--mode", "here"]
    subprocess.run(command, check=True, capture_output=True)
    server = Server(tmp_path / "data", datasets=url).start()
    until(lambda: dataset_of(server, "facts")["state"] == "idle")
    assert [(run["name"], run["done"]) for run in dataset_of(server, "facts")["runs"]] == [("run-7", 3)]
    for name in ("slow_ranks", "step_matrix", "kernel_outliers", "last_ranks"):
        answer = server.api.get(f"/datasets/facts/runs/run-7/questions/{name}")
        assert answer.content == asked(url, name, "--format", "json")
    assert server.stop() == 0


@pytest.mark.system
def test_store_that_does_not_answer_delays_neither_the_start_nor_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(name, value)
        server = Server(tmp_path / "data", datasets="s3://traces/facts").start()
        shown = dataset_of(server, "facts")
        assert (shown["state"], shown["read_at"]) == ("reading", None)
        assert server.stop() == 0
    monkeypatch.setenv("TRACEDOCK_BUCKET_RETRY_S", "0")
    server = Server(tmp_path / "other", datasets="s3://traces/facts").start()  # by now, the port is closed
    until(lambda: dataset_of(server, "facts")["state"] == "unavailable")
    assert "s3://traces/facts" in dataset_of(server, "facts")["reason"]
    answer = server.api.get("/datasets/facts/runs/x/questions/slow_ranks")
    assert (answer.status_code, answer.json()["code"]) == (503, "dataset_unavailable")
    assert server.stop() == 0


def test_damaged_dataset_says_which_file_and_the_others_answer(tmp_path: Path, store: Path) -> None:
    plan = tmp_path / "damaged" / "ingests" / "0000.json"
    Dataset.create(str(tmp_path / "damaged"))
    plan.parent.mkdir()
    plan.write_bytes(b'{"key": "0000"')
    server = Server(tmp_path / "data", datasets=f"{store},{tmp_path / 'damaged'}").start()
    until(lambda: dataset_of(server, "damaged")["state"] == "unavailable")
    assert dataset_of(server, "damaged")["reason"].startswith(f"{plan} is damaged: ")
    until(lambda: dataset_of(server, "facts")["runs_count"] == 3)
    plan.unlink()
    until(lambda: dataset_of(server, "damaged")["state"] == "idle")
    assert server.stop() == 0


@pytest.mark.parametrize("damage", [b"", b"PAR1", bytes(4096)], ids=["empty", "cut", "null bytes"])
def test_damaged_table_of_facts_is_an_error_that_names_it(tmp_path: Path, damage: bytes) -> None:
    dataset = Dataset.create(str(tmp_path / "facts"))
    merge_facts(dataset, [add_rank(dataset, "run", rank) for rank in range(RANKS)], ())
    [table] = (tmp_path / "facts" / "facts" / "steps").iterdir()
    table.write_bytes(damage)
    server = Server(tmp_path / "data", datasets=str(tmp_path / "facts")).start()
    answer = server.api.get("/datasets/facts/runs/run/questions/slow_ranks")
    assert (answer.status_code, answer.json()["code"]) == (503, "dataset_unavailable")
    assert str(table) in answer.json()["detail"]
    assert server.stop() == 0
    command = [TRACEDOCK, "fleet", "ask", str(tmp_path / "facts"), "slow_ranks"]
    asking = subprocess.run(command, check=False, capture_output=True, text=True)
    assert asking.returncode == 1
    assert str(table) in asking.stderr

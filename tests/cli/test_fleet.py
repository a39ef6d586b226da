"""`tracedock fleet` reads traces into a dataset without a server."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.cli.conftest import COMMAND
from tests.traces import TraceShape, write_trace
from tests.waiting import until

RANKS = 3


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "run-7"
    folder.mkdir()
    for rank in range(RANKS):
        write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, world_size=RANKS, steps=1, seed=rank))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def fleet(*arguments: object) -> Result:
    command = ["--url", "http://127.0.0.1:9", "fleet", *map(str, arguments)]
    return CliRunner().invoke(app, command, prog_name="tracedock")


def test_ingest_lists_its_runs_and_status_the_same(traces: Path, store: Path) -> None:
    ingested = fleet("ingest", traces, "--to", store, "--mode", "here")
    assert ingested.exit_code == 0
    assert ingested.stdout.splitlines()[1].split("\t")[:5] == ["run-7", "3", "0", "3", "3"]
    assert fleet("status", store).stdout == ingested.stdout


def test_json_has_the_counts_and_the_runs(traces: Path, store: Path) -> None:
    size = sum(path.stat().st_size for path in traces.iterdir())
    document = json.loads(fleet("ingest", traces, "--to", store, "--mode", "here", "--run", "mine", "--json").stdout)
    counts = {"sources": RANKS, "done": RANKS, "read": RANKS, "failed": 0, "size_bytes": size, "read_bytes": size}
    assert counts.items() <= document.items()
    [run] = document["runs"]
    assert (run["run"], run["done"], run["failed"], run["ranks"]) == ("mine", RANKS, [], RANKS)
    again = json.loads(fleet("ingest", traces, "--to", store, "--mode", "here", "--run", "mine", "--json").stdout)
    assert (again["done"], again["read"]) == (RANKS, 0)
    assert json.loads(fleet("status", store, "--json").stdout)["runs"] == document["runs"]


@pytest.mark.parametrize(
    "options", [[], ["--table", "breakdown"], ["--format", "csv"], ["--categories", "kernel"], ["--cycle", "0"]]
)
def test_analysis_prints_what_the_one_of_the_files_does(traces: Path, store: Path, options: list[str]) -> None:
    fleet("ingest", traces, "--to", store, "--mode", "here")
    files = sorted(map(str, traces.iterdir()))
    others = [argument for file in files[1:] for argument in ("--with", file)]
    analyzed = CliRunner().invoke(app, ["analyze", files[0], "temporal_breakdown", *others, *options])
    of_fleet = fleet("analyze", store, "temporal_breakdown", "--mode", "here", *options)
    assert of_fleet.exit_code == analyzed.exit_code == 0
    assert of_fleet.stdout == analyzed.stdout


def test_unknown_run_and_analysis_are_refused_with_what_there_is(traces: Path, store: Path) -> None:
    fleet("ingest", traces, "--to", store, "--mode", "here")
    for arguments, message in [
        (["steps", "--run", "other"], "There is no run 'other'. Done are traces of run-7."),
        (["nothing"], "There is no analysis 'nothing'."),
        (["compare", "--base", "other"], "There is no run 'other'."),
    ]:
        refused = fleet("analyze", store, *arguments, "--mode", "here")
        assert refused.exit_code == 1
        assert message in refused.stderr


def test_questions_are_listed_and_answered(traces: Path, store: Path) -> None:
    fleet("ingest", traces, "--to", store, "--mode", "here")
    listed = json.loads(fleet("ask", store, "--json").stdout)
    for question in listed:
        answer = fleet("ask", store, question["name"])
        if question["name"] == "drift":
            assert "No run has started before run-7" in answer.stderr
        else:
            assert answer.exit_code == 0, question
    ranks = fleet("ask", store, "slow_ranks", "--table", "ranks").stdout.splitlines()
    assert ranks[0].split("\t")[:2] == ["rank", "host"]
    assert {line.split("\t")[0] for line in ranks[1:]} == {"0", "1", "2"}
    document = json.loads(fleet("ask", store, "step_matrix", "--set", "value=total", "--json").stdout)
    assert document["parameters"] == {"value": "total"}
    assert len(document["tables"]["matrix"]["rows"]) == RANKS
    assert fleet("ask", store, "step_matrix", "-f", "csv").stdout.startswith('"cycle","step","rank"')
    refused = fleet("ask", store, "fast_ranks")
    assert refused.exit_code == 1
    assert "Known are slow_ranks, step_outliers" in refused.stderr


def test_source_that_fails_is_named_and_exits_with_1(traces: Path, store: Path) -> None:
    (traces / "rank1.json").write_text("no trace")
    ingested = fleet("ingest", traces, "--to", store, "--mode", "here")
    assert ingested.exit_code == 1
    assert f"{traces}/rank1.json: The file is not valid JSON (not_json): " in ingested.stderr
    status = fleet("status", store)
    assert status.exit_code == 0
    assert "rank1.json" in status.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "here", "--workers", "2"], "only for --mode local and --mode slurm"),
        (["--partition", "cpu"], "only for --mode slurm"),
        (["--mode", "dask", "--memory", "4GB"], "only for --mode local and --mode slurm"),
        (["--mode", "dask"], "The mode `dask` needs the address of a scheduler"),
        (["--mode", "dask", "--scheduler", "tcp://node1:8786"], "has no TLS"),
        (["--mode", "spark"], "'spark' is not one of"),
    ],
)
def test_options_that_do_not_fit_are_refused(traces: Path, store: Path, options: list[str], message: str) -> None:
    refused = fleet("ingest", traces, "--to", store, *options)
    assert refused.exit_code in {1, 2}
    assert message in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ingest", "nothing*.json", "--to", "{store}"], "there is no trace here"),
        (["ingest", "{traces}", "--to", "ftp://x/y"], "ftp:// is no known kind of location"),
        (["status", "{traces}"], "has no dataset"),
        (["status", "{store}/missing"], "has no dataset"),
    ],
)
def test_place_that_is_not_there_is_an_error(traces: Path, store: Path, arguments: list[str], message: str) -> None:
    refused = fleet(*(argument.format(traces=traces, store=store) for argument in arguments))
    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())


@pytest.mark.system
def test_terminated_ingest_closes_its_workers_and_leaves_a_dataset(traces: Path, store: Path) -> None:
    command = [*COMMAND, "fleet", "ingest", str(traces), "--to", str(store), "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        until(lambda: any((store / "sources").glob("*.json")))
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode in {0, 130}
        until(lambda: not _alive(process.pid))
    assert fleet("status", store).exit_code == 0


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

"""The commands `split` and `merge`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tracedock.client import Client

from tests.cli.conftest import COMMAND, OnTerminal, Run
from tests.cli.double import Answer, Server, job, json_answer, problem, trace
from tests.conftest import DATA
from tests.server import Server as RealServer

ID = "9f2c41d07a3b"
SPLIT, MERGE, JOB = f"/traces/{ID}/split", "/traces/merge", "/jobs/3"
PLAN = {
    "pieces": [
        {"name": "rank0.step3.json.gz", "selection": {"steps": [3]}, "events": 142, "counts": {}, "size": 3627},
        {"name": "rank0.step4.json.gz", "selection": {"steps": [4]}, "events": 1420, "counts": {}, "size": 36270},
    ],
    "events": 1562,
}


@pytest.fixture
def splitting(server: Server) -> Server:
    """Serve a trace and its two children, which a job creates that is still running at the first request."""
    server.traces = [
        trace("a" * 12, "rank0.step3.json.gz", parent=ID),
        trace("b" * 12, "rank0.step4.json.gz", parent=ID),
        trace(ID, "rank0.json"),
    ]
    server.script("POST", SPLIT, accepted())
    finished = job("done", 1000, result={"traces": ["a" * 12, "b" * 12]})
    server.script("GET", JOB, json_answer(job("running", 500)), json_answer(finished))
    return server


def accepted(**more: Any) -> Answer:
    answer = json_answer(job("running"), 202)
    answer.__dict__.update(more)
    return answer


def sent_body(server: Server) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.sent("POST")[-1].body)
    return body


# -- split ---------------------------------------------------------------------------------------------------------


def test_split_prints_the_ids_into_a_pipe_once_the_job_is_done(run: Run, splitting: Server) -> None:
    result = run("split", "rank0.json", "--by", "step", "--streams", "0/7")
    assert (result.exit_code, result.stdout) == (0, f"{'a' * 12}\n{'b' * 12}\n")
    assert sent_body(splitting) == {"by": "step", "selection": {"streams": ["0/7"]}}
    assert "split rank0.json: 50 % of 1,000 events, running" in result.stderr
    assert all(request.query["wait"] == "1" for request in splitting.sent("GET") if request.path == JOB)


def test_split_draws_a_table_on_a_terminal(on_terminal: OnTerminal, splitting: Server) -> None:
    code, drawn, _ = on_terminal("split", ID, "--by", "step")
    assert code == 0
    assert "rank0.step4.json.gz" in drawn
    assert "12,000" in drawn


def test_split_json_is_that_of_the_api(run: Run, splitting: Server) -> None:
    assert json.loads(run("split", ID, "--json").stdout)["result"] == {"traces": ["a" * 12, "b" * 12]}


def test_dry_run_prints_the_plan_without_a_job(run: Run, on_terminal: OnTerminal, splitting: Server) -> None:
    splitting.script("POST", SPLIT, *[json_answer(PLAN)] * 3)
    result = run("split", ID, "--by", "step", "--dry-run")
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["name", "events", "size", "selection"],
        ["rank0.step3.json.gz", "142", "3627", '{"steps":[3]}'],
        ["rank0.step4.json.gz", "1420", "36270", '{"steps":[4]}'],
    ]
    assert sent_body(splitting) == {"by": "step", "dry_run": True}
    assert json.loads(run("split", ID, "--by", "step", "--dry-run", "--json").stdout) == PLAN
    assert "36.3 kB" in on_terminal("split", ID, "--by", "step", "--dry-run")[1]
    assert not [request for request in splitting.requests if request.path == JOB]


@pytest.mark.parametrize(
    ("by", "value", "sent"),
    [("duration", "10ms", 10_000_000), ("parts", "7", 7), ("size", "100MB", 100_000_000)],
)
def test_split_value_accepts_units(run: Run, splitting: Server, by: str, value: str, sent: int) -> None:
    assert run("split", ID, "--by", by, "--value", value).exit_code == 0
    assert sent_body(splitting) == {"by": by, "value": sent}


@pytest.mark.parametrize(
    "options",
    [
        "--by duration", "--by step --value 3", "--value 3", "--by parts --value 1.5", "--by parts --value 0",
        "--by duration --value 10MB", "--by size --value 10ms", "--by size --value=-1MB", "--by hour", "-o out",
        "--force",
    ],
)  # fmt: skip
def test_invalid_split_options_are_wrong_usage(run: Run, splitting: Server, options: str) -> None:
    assert run("split", ID, *options.split()).exit_code == 2
    assert splitting.requests == []


def test_split_prints_the_error_of_the_server(run: Run, splitting: Server) -> None:
    message = "The trace has no step 77; it has 3, 4."
    splitting.script("POST", SPLIT, problem(422, "unknown_choice", "The trace has nothing of that name", message))
    result = run("split", ID, "--steps", "77")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: The trace has nothing of that name (unknown_choice)\n{message}\n"


@pytest.mark.parametrize(
    ("final_job", "message"),
    [
        (job("failed", error={"code": "disk_full", "title": "The disk is full", "detail": "No room."}), "No room."),
        (job("cancelled"), "A client cancelled job 3."),
    ],
)
def test_split_whose_job_fails_or_is_cancelled_fails(
    run: Run, splitting: Server, final_job: dict[str, Any], message: str
) -> None:
    splitting.script("GET", JOB, json_answer(final_job))
    result = run("split", ID)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


# -- merge ---------------------------------------------------------------------------------------------------------


def rank(number: int, collectives: int = 6) -> dict[str, Any]:
    return {
        "rank": number,
        "name": f"rank{number}.json",
        "base_ns": None,
        "shift_ns": -12_345 * number,
        "collectives": collectives,
        "residual_ns": {"median": 200, "p95": 900, "max": 1_100} if collectives else None,
        "pids": [],
    }


@pytest.fixture
def merging(server: Server) -> Server:
    merged = trace("c" * 12, "merged-2.json", ranks=[rank(0), rank(1)])
    server.traces = [merged, trace("a" * 12, "rank0.json"), trace("b" * 12, "rank1.json")]
    server.script("POST", MERGE, accepted())
    server.script("GET", JOB, json_answer(job("done", 1000, result={"traces": ["c" * 12]})))
    return server


def test_merge_prints_the_id(run: Run, merging: Server) -> None:
    options = ("--align", "base", "--ranks", "1,0", "--name", "run.json", "--cycle", "1")
    result = run("merge", "rank1.json", "aaaa", *options)
    assert (result.exit_code, result.stdout) == (0, f"{'c' * 12}\n")
    ids = ["b" * 12, "a" * 12]
    assert sent_body(merging) == {"traces": ids, "align": "base", "ranks": [1, 0], "name": "run.json", "cycle": 1}
    assert "-12" not in result.stderr


def test_merge_prints_clock_alignments_on_a_terminal(on_terminal: OnTerminal, merging: Server) -> None:
    code, drawn, piped = on_terminal("merge", "rank0.json", "rank1.json", terminal=("stderr",))
    assert (code, piped) == (0, f"{'c' * 12}\n")
    assert sent_body(merging)["align"] == "collectives"
    for text in ("-12.3 µs", "1.10 µs", "rank1.json"):
        assert text in drawn


def test_merge_notes_ranks_without_common_collectives(run: Run, merging: Server) -> None:
    merging.traces[0]["ranks"][1] = rank(1, collectives=0)
    assert "without a common collective: rank 1." in run("merge", "rank0.json", "rank1.json").stderr


@pytest.mark.parametrize(
    "arguments", ["rank0.json", "rank0.json rank1.json --ranks 0", "a b --ranks x", "a b -o x", "a b --align some"]
)
def test_invalid_merge_options_are_wrong_usage(run: Run, merging: Server, arguments: str) -> None:
    assert run("merge", *arguments.split()).exit_code == 2
    assert merging.requests == []


def test_show_prints_the_origin_of_a_derived_trace(run: Run, merging: Server) -> None:
    merging.traces[0] |= {"sha256": None, "format": None, "parent": "a" * 12, "selection": {"steps": [3]}}
    facts = [line.split("\t") for line in run("show", "cccc").stdout.splitlines()]
    assert ["sha256", r"\N"] in facts
    assert ["parent", "a" * 12] in facts
    assert ["selection", '{"steps":[3]}'] in facts
    message = "1 shift -12345 ns, 6 collectives, residual 200, 900, 1100 ns: rank1.json"
    assert ["merged_rank", message] in facts


def test_ls_lists_the_children_of_a_trace(run: Run, splitting: Server) -> None:
    lines = run("ls", "--parent", "rank0.json").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == ["a" * 12, "b" * 12]


# -- Ctrl-C --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_ctrl_c_cancels_the_job(server: Server, environment: dict[str, str], method: str) -> None:
    """An interrupt cancels the job, even before the server has returned its id."""
    server.traces = [trace(ID, "rank0.json")]
    released = Event()
    delayed_answer = json_answer(job("running"))
    delayed_answer.hold = released
    server.script("POST", SPLIT, accepted(hold=released) if method == "POST" else accepted())
    if method == "GET":
        server.arrived.clear()
        server.script("GET", JOB, delayed_answer)
    server.script("DELETE", JOB, json_answer(job("cancelled")))
    with subprocess.Popen(
        [*COMMAND, "split", ID], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not server.sent(method) or server.sent(method)[-1].path not in (SPLIT, JOB):
            assert process.poll() is None
            server.arrived.wait(0.01)
        process.send_signal(signal.SIGINT)
        if method == "POST":
            assert process.stderr
            assert "once the server returns its id" in process.stderr.readline()
            released.set()
        out, err = process.communicate(timeout=120)
    released.set()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Job 3 is cancelled.\ninterrupted\n")
    assert [request.path for request in server.sent("DELETE")] == [JOB]


# -- a real server -------------------------------------------------------------------------------------------------


def test_split_and_merge_work_with_a_real_server(start_server: Any, tmp_path: Path, run: Run) -> None:
    real: RealServer = start_server()
    whole = real.upload(DATA / "cpu_train_steps.pt.trace.json.gz")["id"]

    def ask(*arguments: str) -> list[str]:
        result = run("--url", real.url, *arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout.splitlines()

    assert len(ask("split", whole, "--by", "step", "--dry-run")) == 5
    steps = ask("split", whole, "--by", "step", "--categories", "cpu_op,user_annotation")
    assert [line.split("\t")[0] for line in ask("ls", "--parent", whole)[1:]] == steps
    assert "selection\t" in "\n".join(ask("show", steps[0]))
    (merged,) = ask("merge", *steps, "--name", "again.json")
    with Client(real.url) as client:
        assert client.trace(merged)["name"] == "again.json"
        (job,) = map(json.loads, ask("split", whole, "--steps", "3", "--json"))
        assert client.cancel(job["id"])["state"] == "done"  # the job had ended before
    file = tmp_path / "step.json"
    ask("download", whole, "--steps", "3", "-f", "json", "-o", str(file))
    assert json.loads(file.read_bytes())["tracedock"]["part"]["selection"] == {"steps": [3]}
    count = ask("query", whole, "select count(*) from slice where name glob 'ProfilerStep*'", "--steps", "3")
    assert count[1] == "1"
    assert ask("open", whole, "--steps", "3") == [
        f"{real.url}/api/v1/traces/{whole}/perfetto?selection=%7B%22steps%22%3A%5B3%5D%7D"
    ]
    refused = run("--url", real.url, "split", whole, "--steps", "77")
    assert refused.exit_code == 1
    assert "it has 2, 3, 4, 5" in refused.stderr

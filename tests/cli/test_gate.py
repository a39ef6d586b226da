"""The commands `gate`, `baseline` and `history`, of local files, a real server, and servers that misbehave."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tracedock.client import Client
from tracedock.gate.parser import add_commands
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.cli.conftest import OnTerminal
from tests.cli.conftest import Run as RunCommand
from tests.cli.double import Server as Double
from tests.client.gate.noisy import run_events
from tests.server import Server

RULE = ("--rule", "step.median<+3%")
Invoke = Callable[..., Result]


def write(path: Path, *, seed: int, rank: int | None = None, **changed: Any) -> Path:
    document: dict[str, Any] = {"traceEvents": run_events(seed, **changed)}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": "nccl"}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of traces: two runs of one program, one with a slower forward pass, one of two steps."""
    folder = tmp_path_factory.mktemp("gate")
    runs: dict[str, dict[str, Any]] = {
        "base": {"seed": 1},
        "same": {"seed": 2},
        "slow": {"seed": 3, "forward": 1.3},
        "short": {"seed": 4, "steps": 2},
    }
    return {name: str(write(folder / f"{name}.json", **options)) for name, options in runs.items()}


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "options", "code"),
    [
        ("same", (), 0),
        ("slow", (), 1),
        ("short", (), 4),
        ("short", ("--undecided", "pass"), 0),
        ("short", ("--undecided", "fail"), 1),
        ("slow", ("--level", "1.5"), 2),
    ],
)
def test_exit_code_tells_the_outcome(
    run: RunCommand, files: dict[str, str], candidate: str, options: tuple[str, ...], code: int
) -> None:
    result = run("gate", files["base"], files[candidate], *RULE, *options)
    assert result.exit_code == code, result.stderr


def test_table_in_a_pipe_is_exact_and_the_conclusion_is_on_stderr(run: RunCommand, files: dict[str, str]) -> None:
    result = run("gate", files["base"], files["slow"], *RULE, "--rule", "kernel:nccl*.sum<+10%")
    names, *lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[names.index("outcome")] for line in lines] == ["regression", "pass"]
    assert all(line[names.index("baseline")].isdigit() for line in lines)
    assert "step.median<+3% fails: " in result.stderr


def test_table_on_a_terminal_has_units(on_terminal: OnTerminal, files: dict[str, str]) -> None:
    code, drawn, _ = on_terminal("gate", files["base"], files["slow"], *RULE, terminal=("stdout",))
    assert (code, " ms  " in drawn, "Mann-Whitney U test" in drawn) == (1, True, True)


def test_outputs_are_written_in_the_forms_of_their_suffixes(
    run: RunCommand, files: dict[str, str], tmp_path: Path
) -> None:
    outputs = [tmp_path / name for name in ("gate.json", "gate.xml", "gate.md")]
    options = [option for output in outputs for option in ("-o", str(output))]
    assert run("gate", files["base"], files["slow"], *RULE, *options).exit_code == 1
    assert json.loads(outputs[0].read_text())["outcome"] == "regression"
    assert "<failure" in outputs[1].read_text()
    assert outputs[2].read_text().startswith("### Regression: ")
    refused = run("gate", files["base"], files["slow"], *RULE, "-o", str(tmp_path / "gate.txt"))
    assert (refused.exit_code, ".json, .xml, .md" in refused.stderr) == (2, True)


@pytest.mark.parametrize("form", ["json", "junit", "markdown"])
def test_standard_output_has_the_form(run: RunCommand, files: dict[str, str], form: str) -> None:
    result = run("gate", files["base"], files["same"], *RULE, "-f", form)
    assert result.exit_code == 0
    assert result.stdout.startswith({"json": "{", "junit": "<?xml", "markdown": "### Passed"}[form])


def test_folder_is_a_run_of_several_ranks(run: RunCommand, tmp_path: Path) -> None:
    for side, forward in (("a", 1.0), ("b", 1.3)):
        for rank in (0, 1):
            write(
                tmp_path / side / f"rank{rank}.json", seed=rank + len(side), rank=rank, forward=forward if rank else 1.0
            )
    result = run("gate", str(tmp_path / "a"), str(tmp_path / "b"), *RULE, "-f", "json")
    assert result.exit_code == 1, result.stderr
    each = run("gate", str(tmp_path / "a"), str(tmp_path / "b"), *RULE, "-f", "json", "--each-rank")
    rules = json.loads(each.stdout)["rules"]
    assert [(rule["rank"], rule["outcome"]) for rule in rules] == [(0, "pass"), (1, "regression")]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "needs a rule"),
        (("--rule", "steps.median<+3%"), "the subjects are step"),
        (("--rule", "kernel:none.sum<+3%"), "there are 'gemm_backward'"),
        (("--rule", "op:x.sum<+3%"), "matches nothing"),
        (("--rule", "memory.median<+3%"), "profile_memory=True"),
    ],
)
def test_rules_that_cannot_be_judged_are_refused(
    run: RunCommand, files: dict[str, str], arguments: tuple[str, ...], hint: str
) -> None:
    result = run("gate", files["base"], files["same"], *arguments)
    assert (result.exit_code, hint in result.stderr) == (2, True), result.stderr


def test_trace_without_steps_is_refused_and_no_regression(
    run: RunCommand, files: dict[str, str], tmp_path: Path
) -> None:
    events = [event for event in run_events(1) if not event["name"].startswith("ProfilerStep")]
    (tmp_path / "none.json").write_text(json.dumps({"traceEvents": events}))
    result = run("gate", files["base"], str(tmp_path / "none.json"), *RULE)
    assert (result.exit_code, "No ProfilerStep" in result.stderr) == (2, True)
    assert run("gate", files["base"], str(tmp_path / "missing.json"), *RULE).exit_code == 2
    (tmp_path / "empty").mkdir()
    assert run("gate", files["base"], f"{tmp_path}/empty", *RULE).exit_code == 2


# -- a server ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server."""
    started = Server(tmp_path_factory.mktemp("gate-server") / "data").start()
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module")
def served(real: Server, files: dict[str, str]) -> dict[str, str]:
    """Ids of the traces of the files on a real server, by the names of the files."""
    return {name: real.upload(Path(path))["id"] for name, path in files.items()}


@pytest.fixture
def invoke(real: Server) -> Invoke:
    return lambda *args: CliRunner().invoke(app, ["--url", real.url, *args], prog_name="tracedock")


def test_traces_on_a_server_are_judged_like_their_files(
    invoke: Invoke, real: Server, served: dict[str, str], files: dict[str, str]
) -> None:
    of_server = json.loads(invoke("gate", served["base"], served["slow"], *RULE, "-f", "json").stdout)
    of_files = json.loads(invoke("gate", files["base"], files["slow"], *RULE, "-f", "json").stdout)
    assert of_server["rules"] == of_files["rules"]
    assert of_server["compare"] == f"{real.url}/compare?base={served['base']}&other={served['slow']}"
    assert real.api.get(of_server["compare"]).status_code == 200
    assert real.api.get(of_server["candidate"]["url"]).status_code == 200


def test_baseline_has_a_name_and_a_history(invoke: Invoke, served: dict[str, str]) -> None:
    for name in ("base", "slow", "same"):
        assert invoke("baseline", "set", "nightly", served[name]).exit_code == 0
    assert invoke("gate", "@nightly", served["slow"], *RULE).exit_code == 1
    shown = [line.split("\t") for line in invoke("baseline", "show", "nightly").stdout.splitlines()]
    assert [line[2] for line in shown] == ["target", served["same"], served["slow"], served["base"]]
    past = json.loads(invoke("history", "step.median", "--baseline", "nightly", "--json").stdout)
    assert [point["name"] for point in past] == ["base.json", "slow.json", "same.json"]
    assert [point["change_pct"] is not None and point["p_value"] < 0.01 for point in past] == [False, True, False]
    assert [json.loads(invoke("baseline", "--json").stdout)[0][key] for key in ("name", "target")] == [
        "nightly",
        served["same"],
    ]
    assert invoke("baseline", "rm", "nightly").exit_code == 0
    assert invoke("gate", "@nightly", served["slow"], *RULE).exit_code == 2


def test_baseline_whose_trace_was_deleted_says_so(
    invoke: Invoke, real: Server, tmp_path: Path, served: dict[str, str]
) -> None:
    gone = real.upload(write(tmp_path / "gone.json", seed=9))["id"]
    invoke("baseline", "set", "gone", gone)
    real.api.delete(f"/traces/{gone}")
    result = invoke("gate", "@gone", served["same"], *RULE)
    assert (result.exit_code, "'gone.json' of the baseline 'gone' was deleted" in result.stderr) == (2, True)
    [point] = json.loads(invoke("history", "step.median", "--baseline", "gone", "--json").stdout)
    assert (point["value"], point["reason"]) == (None, "The trace was deleted.")
    invoke("baseline", "rm", "gone")


def test_history_takes_the_latest_uploads_of_a_name_in_order_of_time(invoke: Invoke, served: dict[str, str]) -> None:
    lines = [line.split("\t") for line in invoke("history", "step.median", "--name", "s*.json").stdout.splitlines()]
    assert [line[2] for line in lines] == ["name", "same.json", "slow.json", "short.json"]
    latest = [
        line.split("\t")
        for line in invoke("history", "step.median", "--name", "s*.json", "--limit", "1").stdout.splitlines()
    ]
    assert latest[1][1] == served["short"]
    assert invoke("history", "step.p99").exit_code == 2
    assert invoke("history", "step.median", "--name", "x", "--baseline", "y").exit_code == 2


def test_light_command_line_has_the_same_commands(
    real: Server, served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())

    def light(*arguments: str) -> int:
        args = parser.parse_args(arguments)
        with Client(real.url) as client:
            code: int = args.run(args, client)
        return code

    assert light("gate", served["base"], served["same"], *RULE) == 0
    assert light("gate", served["base"], served["slow"], *RULE) == 1
    assert light("gate", served["base"], served["short"], *RULE) == 4
    assert light("gate", served["base"], "nothing", *RULE) == 2
    assert light("baseline", "set", "light", served["base"]) == 0
    assert light("gate", "@light", served["slow"], *RULE) == 1
    assert light("history", "step.median", "--baseline", "light") == 0
    assert light("baseline", "set", "light") == 2
    assert light("baseline", "rm", "light") == 0
    assert "error: The forms are: baseline ls" in capsys.readouterr().err


def test_light_command_line_names_the_package_that_reads_files(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    args = parser.parse_args(["gate", files["base"], files["same"], *RULE])
    with Client("http://127.0.0.1:9") as client:
        assert args.run(args, client) == 2
    assert "needs the package tracedock-server" in capsys.readouterr().err


def test_unreachable_server_has_its_own_exit_code(files: dict[str, str]) -> None:
    result = CliRunner().invoke(app, ["--url", "http://127.0.0.1:9", "gate", "0123456789ab", files["base"], *RULE])
    assert result.exit_code == 3


def test_refusal_of_a_server_is_no_regression(run: RunCommand, server: Double) -> None:
    server.traces = []
    result = run("gate", "0123456789ab", "ba9876543210", *RULE)
    assert (result.exit_code, "unknown_trace" in result.stderr) == (2, True)

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from threading import Event

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.cli.commands import App, Group
from service.cli.main import SECTIONS, app, command_in
from tests.cli.conftest import COMMAND, Run
from tests.cli.double import Answer, Server, json_answer, trace


def test_unreachable_server_is_exit_code_3_with_the_url_and_a_hint() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        result = CliRunner().invoke(app, ["ls"], env={"TRACEDOCK_URL": url})
    assert result.exit_code == 3
    assert url in result.stderr
    assert "tracedock serve" in result.stderr
    assert "make run" in result.stderr


def test_invalid_url_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["--url", "localhost:8700", "ls"])
    assert result.exit_code == 2
    assert "localhost:8700" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["ls", "--url", "{url}"], ["ls", "--url={url}"], ["ls", "--url", "{url}", "--token", "t"], ["--url={url}", "ls"]],
)
def test_url_and_token_may_follow_the_command(server: Server, arguments: list[str]) -> None:
    server.traces = [trace("9f2c41d07a3b", "rank0.json")]
    result = CliRunner().invoke(app, [argument.format(url=server.url) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    assert "rank0.json" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"), [(["ls", "--url"], "requires an argument"), (["show", "--", "--url"], "--url")]
)
def test_option_without_a_value_and_text_after_two_dashes_are_not_moved(
    server: Server, arguments: list[str], reason: str
) -> None:
    result = CliRunner().invoke(app, arguments, env={"TRACEDOCK_URL": server.url})
    assert result.exit_code in {1, 2}
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["ls"], "ls"),
        (["--url", "ls", "-q", "show", "ls"], "show"),
        (["--url=ls", "show"], "show"),
        (["--help", "ls"], ""),
        (["--url"], ""),
        ([], ""),
    ],
)
def test_command_is_the_first_word_after_options_of_every_command(words: list[str], command: str) -> None:
    assert command_in(words) == command


def test_app_keeps_only_a_command_or_group_that_it_has() -> None:
    def names(kept: str) -> set[str]:
        commands, group = App(Group), App(Group)
        for name in ("ls", "show"):
            commands.command(name)(print)
            group.command(name)(print)
        commands.add_typer(group, name="jobs")
        commands.keep_only(kept)
        groups = {str(each.name) for each in commands.registered_groups}
        return groups | {str(each.name) for each in commands.registered_commands}

    assert names("ls") == {"ls"}
    assert names("jobs") == {"jobs"}
    assert names("lss") == {"ls", "show", "jobs"}


def test_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"tracedock {version('tracedock')}\n")


def test_help_lists_each_command_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(get_command(app).commands)  # type: ignore[attr-defined] # it is a group
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert [text.index(f"\n{title}:") for title in SECTIONS] == sorted(text.index(f"\n{title}:") for title in SECTIONS)


def test_answer_of_another_program_is_named_and_its_page_is_not_shown(run: Run, server: Server) -> None:
    server.script("GET", "/traces", Answer(404, b"<html><h1>Nothing here</h1></html>", "text/html"))
    result = run("ls")
    assert result.exit_code == 1
    assert "HTTP 404 Not Found" in result.stderr
    assert "not the answer of a Tracedock server" in result.stderr
    assert "<h1>" not in result.stderr


def test_ctrl_c_ends_a_running_query_with_130_and_no_traceback(server: Server, environment: dict[str, str]) -> None:
    server.traces = [trace("9f2c41d07a3b", "rank0.json")]
    done = Event()
    delayed_answer = json_answer({})
    delayed_answer.hold = done
    server.script("POST", "/traces/9f2c41d07a3b/query", delayed_answer)
    with subprocess.Popen(
        [*COMMAND, "query", "latest", "select"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert server.arrived.wait(30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    done.set()
    assert process.returncode == 130
    assert (out, err) == ("", "interrupted\n")


def test_closed_pipe_causes_no_error_message(server: Server, environment: dict[str, str]) -> None:
    server.page = 1000
    server.traces = [trace(f"{n:012x}", "n" * 500) for n in range(1000)]
    with subprocess.Popen(
        [*COMMAND, "ls", "--limit", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        error_output = process.stderr.read()
    assert (process.returncode, error_output) == (141, b"")


def test_ls_imports_neither_the_service_nor_the_command_line_of_httpx(environment: dict[str, str]) -> None:
    program = (
        "import os, sys\n"
        "from service.cli.main import main\n"
        "codes = []\n"
        "os._exit = codes.append\n"
        "sys.argv = ['tracedock', 'ls']\n"
        "main()\n"
        "assert codes == [0]\n"
        "heavy = {'service.app', 'service.engine', 'service.settings', 'fastapi', 'pyarrow', 'numpy', 'mcp', 'rich'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_help() -> None:
    for command in ("serve", "upload", "ls", "show", "download", "split", "merge", "query", "open", "rm", "doctor"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.stdout


def test_answer_of_no_to_a_question_changes_nothing(server: Server, environment: dict[str, str]) -> None:
    server.traces = [trace("9f2c41d07a3b", "rank0.json")]
    ours, theirs = os.openpty()
    os.write(ours, b"n\n")
    done = subprocess.run(
        [*COMMAND, "rm", "latest"], env=environment, stdin=theirs, capture_output=True, text=True, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("aborted: nothing was changed\n")
    assert len(server.traces) == 1

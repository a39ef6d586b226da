from __future__ import annotations

import signal
import socket
import subprocess
import sys
from threading import Event

from typer.testing import CliRunner

from service.cli.main import app
from tests.cli.conftest import COMMAND
from tests.cli.double import Server, json_answer, trace


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


def test_ls_does_not_import_the_service(environment: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from service.cli.main import app\n"
        "app(['ls'], standalone_mode=False)\n"
        "heavy = {'service.app', 'service.engine', 'service.settings', 'fastapi', 'pyarrow', 'numpy'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_help() -> None:
    for command in ("serve", "upload", "ls", "show", "download", "split", "merge", "query", "open", "rm", "doctor"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.stdout

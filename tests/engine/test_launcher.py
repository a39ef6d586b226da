"""What runs before the engine, in its process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from service.engine import launcher


def launched(parent: int, *command: str, sandbox: bool = False) -> subprocess.CompletedProcess[str]:
    options = json.dumps({"sandbox": sandbox, "read": []})
    return subprocess.run(
        [sys.executable, "-I", "-S", launcher.__file__, str(parent), options, *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_becomes_the_command() -> None:
    assert launched(os.getpid(), "/bin/echo", "a b", "--c").stdout == "a b --c\n"


def test_it_becomes_the_command_in_the_sandbox_too() -> None:
    assert launched(os.getpid(), "/bin/echo", "a b", "--c", sandbox=True).stdout == "a b --c\n"


def test_it_runs_nothing_for_a_parent_that_is_gone() -> None:
    done = launched(1, "/bin/echo", "hello")
    assert (done.returncode, done.stdout) == (1, "")


def test_it_says_what_cannot_be_run() -> None:
    for sandbox in (False, True):
        done = launched(os.getpid(), "/nowhere/engine", sandbox=sandbox)
        assert (done.returncode, done.stderr) == (1, "/nowhere/engine can't be run: No such file or directory.\n")


def test_it_says_that_a_script_has_no_sandbox(tmp_path: Path) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    assert launched(os.getpid(), str(script)).stdout == "hello\n"
    done = launched(os.getpid(), str(script), sandbox=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is a script" in done.stderr
    assert "TRACEDOCK_ENGINE_SANDBOX=off" in done.stderr

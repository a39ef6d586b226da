"""What runs before the engine, in its process."""

import os
import subprocess
import sys
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "service" / "engine" / "launcher.py"


def launched(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCHER), str(parent), *command], capture_output=True, text=True, check=False
    )


def test_it_becomes_the_command() -> None:
    assert launched(os.getpid(), "/bin/echo", "a b", "--c").stdout == "a b --c\n"


def test_it_runs_nothing_for_a_parent_that_is_gone() -> None:
    done = launched(1, "/bin/echo", "hello")
    assert (done.returncode, done.stdout) == (1, "")


def test_it_says_what_cannot_be_run() -> None:
    done = launched(os.getpid(), "/nowhere/engine")
    assert (done.returncode, done.stderr) == (1, "/nowhere/engine can't be run: No such file or directory.\n")

"""The launcher replaces itself with the engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

from service.engine.trace_processor import launcher


def launched(parent: int, *command: str, sandbox: bool = False) -> subprocess.CompletedProcess[str]:
    options = json.dumps({"sandbox": sandbox, "read": []})
    return subprocess.run(
        [sys.executable, "-I", "-S", launcher.__file__, str(parent), options, *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_launcher_becomes_the_command() -> None:
    assert launched(os.getpid(), "/bin/echo", "a b", "--c").stdout == "a b --c\n"


def test_launcher_becomes_the_command_in_the_sandbox() -> None:
    assert launched(os.getpid(), "/bin/echo", "a b", "--c", sandbox=True).stdout == "a b --c\n"


def test_launcher_exits_if_its_parent_has_ended() -> None:
    process = launched(1, "/bin/echo", "hello")
    assert (process.returncode, process.stdout) == (1, "")


def test_command_that_can_not_be_run_is_named() -> None:
    for sandbox in (False, True):
        process = launched(os.getpid(), "/nowhere/engine", sandbox=sandbox)
        assert (process.returncode, process.stderr) == (1, "/nowhere/engine can't be run: No such file or directory.\n")


def test_script_in_the_sandbox_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    assert launched(os.getpid(), str(script)).stdout == "hello\n"
    process = launched(os.getpid(), str(script), sandbox=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert "is a script" in process.stderr
    assert "TRACEDOCK_ENGINE_SANDBOX=off" in process.stderr


def test_engine_gets_settings_of_the_allocator() -> None:
    for sandbox in (False, True):
        variables = launched(os.getpid(), "/usr/bin/env", sandbox=sandbox).stdout.split()
        assert {"MALLOC_MMAP_THRESHOLD_=65536", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"} <= {*variables}

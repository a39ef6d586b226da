"""Actions that the sandbox forbids, attempted inside it, and outside for comparison."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from service.engine.trace_processor import launcher, protections, sandbox, wire
from service.engine.trace_processor.process import TraceProcessor
from service.settings import Settings
from service.trace.errors import EngineUnavailable

ON_REQUEST = Path(sandbox.HUGE_PAGES, "enabled")

ATTEMPT = f"""
import os, signal, socket, sys, threading
sys.path.append({str(Path(sandbox.__file__).parent)!r})
import sandbox
folder, server = sys.argv[1:]
if {{enter}}:
    sandbox.enter(sys.executable, [folder + "/modules"])
try:
    {{attempt}}
except PermissionError:
    print("refused")
else:
    print("done")
"""

REFUSED = {
    "read a file": "open(folder + '/secret').read()",
    "read what all may read": "open('/etc/passwd').read()",
    "read the environment of the server": "open(f'/proc/{server}/environ').read()",
    "read its own memory": "open('/proc/self/mem', 'rb')",
    "list a folder": "os.listdir(folder)",
    "make a file": "open(folder + '/new', 'w')",
    "write into what it may read": "open(folder + '/modules/one.sql', 'a')",
    "truncate a file": "os.truncate(folder + '/secret', 0)",
    "remove a file": "os.remove(folder + '/secret')",
    "rename a file": "os.rename(folder + '/secret', folder + '/other')",
    "make a folder": "os.mkdir(folder + '/new')",
    "link to a file": "os.symlink('/etc/passwd', folder + '/modules/link')",
    "change a file's mode": "os.chmod(folder + '/secret', 0o777)",
    "change a file's times": "os.utime(folder + '/secret')",
    "make a file in memory": "os.memfd_create('x')",
    "open a TCP socket": "socket.socket()",
    "open a pair of sockets": "socket.socketpair()",
    "fork": "os.fork() or os._exit(0)",
    "spawn": "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "become another program": "os.execv('/bin/echo', ['echo', 'done'])",
    "signal the server": "os.kill(int(server), 0)",
}
ALLOWED = {
    "read what it was given": "open(folder + '/modules/one.sql').read()",
    "list what it was given": "os.listdir(folder + '/modules')",
    "read nothing": "open('/dev/null').read()",
    "abort": "os.kill(os.getpid(), 0)",
    "start a thread": "threading.Thread(target=len, args=('',)).start()",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to read and to damage."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "one.sql").write_text("SELECT 1")
    return tmp_path


def attempted(attempt: str, folder: Path, *, enter: bool) -> str:
    """Attempt an action in a process, inside or outside of the sandbox; return `done` or `refused`."""
    program = ATTEMPT.format(enter=enter, attempt=attempt)
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(folder), str(os.getpid())], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def contents(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED)
def test_action_possible_outside_is_refused_inside(attempt: str, folder: Path) -> None:
    before = contents(folder)
    assert attempted(attempt, folder, enter=True) == "refused"
    assert contents(folder) == before
    assert attempted(attempt, folder, enter=False) == "done"


@pytest.mark.parametrize("attempt", ALLOWED.values(), ids=ALLOWED)
def test_action_that_an_engine_needs_is_allowed_inside(attempt: str, folder: Path) -> None:
    assert attempted(attempt, folder, enter=True) == "done"


def shell(command: str, *, inside: bool, **more: object) -> str:
    """Return the output of a shell that the launcher starts."""
    options = json.dumps({"sandbox": inside, "read": []})
    launch = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), options]
    done = subprocess.run([*launch, "/bin/sh", "-c", command], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload] # options by name
    return str(done.stdout)


def test_open_files_of_the_server_are_closed_inside(folder: Path) -> None:
    with (folder / "secret").open() as file:
        command = f"test -e /proc/self/fd/{file.fileno()} && echo open"
        assert shell(command, inside=False, pass_fds=[file.fileno()]) == "open\n"
        assert shell(command, inside=True, pass_fds=[file.fileno()]) == ""


def test_secrets_in_the_environment_are_unknown_inside() -> None:
    environment = os.environ | {"TRACEDOCK_TOKEN": "secret", "TZ": "Europe/Vienna"}
    command = "echo $TRACEDOCK_TOKEN $TZ"
    assert shell(command, inside=True, env=environment) == "Europe/Vienna\n"
    assert shell(command, inside=False, env=environment) == "secret Europe/Vienna\n"


async def no_trace() -> AsyncIterator[bytes]:
    yield b'{"traceEvents":[]}'


def is_in_sandbox(pid: int) -> bool:
    """Return whether a process has a seccomp filter and no_new_privs, according to the kernel."""
    status = Path(f"/proc/{pid}/status").read_text()
    return "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status


def heap_flags(pid: int) -> list[str]:
    """Return the kernel's flags of the heap of a process; see proc_pid_smaps(5)."""
    _, _, heap = Path(f"/proc/{pid}/smaps").read_text().partition("[heap]")
    _, _, flags = heap.partition("VmFlags:")
    return flags.partition("\n")[0].split()


@asynccontextmanager
async def running(
    engine: Path, *, memory_limit_bytes: int = 1 << 30, **options: Any
) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Run an engine without the SQL policy, and yield a function that runs SQL and returns the error."""
    process = await TraceProcessor.start(engine, **options)
    process.limit_memory(memory_limit_bytes)
    try:
        await process.feed(no_trace())

        async def ask(sql: str) -> str:
            answer = await process.ask(wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql)))
            return str(answer.query_result.error)

        assert is_in_sandbox(process.pid) or not options.get("sandbox", True)
        yield ask
    finally:
        await process.stop(1)


ON_FILES = {
    "attach": "ATTACH '{folder}/catalog' AS c",
    "attach by URI": "ATTACH 'file:{folder}/catalog?vfs=unix' AS c",
    "attach a new one": "ATTACH '{folder}/new' AS n; CREATE TABLE n.t AS SELECT 1 AS x",
    "attach from a function": "SELECT CREATE_FUNCTION('red()', 'INT', 'ATTACH ''{folder}/new'' AS n'); SELECT red()",
    "export": "SELECT EXPORT_JSON('{folder}/new')",
    "vacuum": "VACUUM INTO '{folder}/new'",
}


@pytest.mark.parametrize("sql", ON_FILES.values(), ids=ON_FILES)
async def test_sandbox_alone_keeps_an_engine_from_files(sql: str, engine: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog")) as catalog:
        catalog.execute("CREATE TABLE secrets AS SELECT 1 AS x")
    before = contents(tmp_path)
    async with running(engine) as ask:
        assert await ask(sql.format(folder=tmp_path))
        assert await ask("SELECT 1") == ""
    assert contents(tmp_path) == before


async def test_engine_without_a_sandbox_can_write_files(engine: Path, tmp_path: Path) -> None:
    async with running(engine, sandbox=False) as ask:
        assert await ask(ON_FILES["vacuum"].format(folder=tmp_path)) == ""
        assert await ask("ATTACH '/etc/passwd' AS p") == "" or "not a database" in await ask(
            "ATTACH '/etc/passwd' AS p"
        )
    assert (tmp_path / "new").exists()


async def test_engine_reads_its_sql_package(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "red.sql").write_text("CREATE PERFETTO TABLE red AS SELECT 7 AS x;")
    async with running(engine, package=tmp_path) as ask:
        assert await ask("INCLUDE PERFETTO MODULE torch.red; SELECT x FROM red") == ""


@pytest.mark.skipif(
    not ON_REQUEST.is_file() or "[madvise]" not in ON_REQUEST.read_text(),
    reason="this system has no large pages for programs that ask for them",
)
async def test_engine_in_the_sandbox_asks_for_large_pages(engine: Path) -> None:
    process = await TraceProcessor.start(engine)
    try:
        await process.feed(no_trace())
        assert "hg" in heap_flags(process.pid)  # MADV_HUGEPAGE
    finally:
        await process.stop(1)


async def test_statement_beyond_the_memory_limit_fails_alone(engine: Path) -> None:
    async with running(engine, memory_limit_bytes=200 << 20) as ask:
        assert "out of memory" in await ask(
            "CREATE TABLE red AS SELECT zeroblob(150000000) || zeroblob(150000000) AS x"
        )
        assert await ask("SELECT 1") == ""


def test_protections_of_this_machine_are_determined() -> None:
    on = protections.available()
    assert on.missing == []
    assert str(on) == f"Landlock ABI {on.landlock}, seccomp, no_new_privs, resource limits"


def test_required_protections_must_be_available(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = protections.Protections(limits=True, no_new_privs=True, landlock=0, seccomp=False)
    monkeypatch.setattr(protections, "available", lambda: bare)
    assert protections.summary(Settings(engine_sandbox="off")) == "off"
    assert protections.summary(Settings()) == "no_new_privs, resource limits; missing here: Landlock, seccomp"
    with pytest.raises(EngineUnavailable, match="this machine lacks: Landlock, seccomp"):
        protections.summary(Settings(engine_sandbox="required"))


def test_protection_without_effect_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hollow = tmp_path / "hollow.py"
    hollow.write_text(Path(sandbox.__file__).read_text().replace("_RESTRICT_SELF, ruleset", "_CREATE_RULESET, None"))
    monkeypatch.setattr(sandbox, "__file__", str(hollow))
    protections.available.cache_clear()
    with pytest.raises(EngineUnavailable, match="can't be set up"):
        protections.available()
    protections.available.cache_clear()


@pytest.mark.parametrize(("column", "architecture"), sandbox._MACHINES.values(), ids=sandbox._MACHINES)
def test_filter_jumps_stay_within_the_program(column: int, architecture: int) -> None:
    program = sandbox._filter(column, architecture)
    for index, (code, if_true, if_false, _) in enumerate(program):
        assert index + max(if_true, if_false) + 1 < len(program) or code == sandbox._RETURN
    assert program[-1] == (sandbox._RETURN, 0, 0, sandbox._ALLOW)

"""A reader's shell: a separate folder with the examples, the command `tracedock`, and a server."""

import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.pages import EXAMPLES, ROOT
from tests.ports import free_port
from tests.server import Server

COLUMNS = 120
SHOWN_URL, SHOWN_LISTENER = "http://127.0.0.1:8700", "127.0.0.1:9001"
_REMEMBERING = "[ -f .vars ] && . ./.vars\n{}\nstatus=$?; export -p > .vars; exit $status"
"""A bash script that runs a command and saves its exported variables for the next command."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Shell:
    """Runs commands as a reader does, with standard output on a terminal of 120 columns.

    Args:
        folder: an empty folder to work in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        runs = self.folder / "runs"
        runs.mkdir(parents=True)
        shutil.copytree(EXAMPLES, self.folder / "docs" / "examples")
        shutil.copytree(ROOT / "tests" / "data", self.folder / "tests" / "data")
        port = free_port()
        self.server = Server(
            folder / "data", keep_ready=True, import_roots=str(runs), import_look_s=0.2, perfetto_port=port
        ).start()
        self._shown = {SHOWN_URL: self.server.url, SHOWN_LISTENER: f"127.0.0.1:{port}", "/srv/runs": str(runs)}
        command = folder / "bin" / "tracedock"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:{ROOT}/client" exec "{sys.executable}" -m service "$@"\n')
        command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEDOCK_")}
        self.environment = kept | {
            "COLUMNS": str(COLUMNS),
            "NO_COLOR": "1",
            "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "TRACEDOCK_DATA": str(folder / "data"),
            "TRACEDOCK_URL": self.server.url,
        }

    def clear(self) -> None:
        """Remove all traces, groups, watching imports and new files, so that each page starts from the same state."""
        for kind in ("groups", "traces", "imports"):
            for entry in self.server.api.get(f"/{kind}").json()[kind]:
                self.server.api.delete(f"/{kind}/{entry['id']}")
        for path in [*self.folder.glob("*.*"), *self.folder.glob("runs/*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit status and its standard output, followed by the error if it fails."""
        command = self._real(command)
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        with subprocess.Popen(
            ["bash", "-c", _REMEMBERING.format(command)], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            os.close(theirs)
            output = b"".join(iter(lambda: _read(ours), b""))
            _, complaint = process.communicate()
        os.close(ours)
        if process.returncode:
            output += complaint[max(0, complaint.find(b"error: ")) :]  # leave out the progress before the error
        text = re.sub(r"\r*\n", "\n", _ESCAPES.sub("", output.decode()))
        for shown, real in self._shown.items():
            text = text.replace(real, shown)
        return process.returncode, text.strip("\n")

    def python(self, program: str) -> tuple[int, str]:
        """Run a Python program, and return the same as `run`."""
        self.folder.joinpath("program.py").write_text(self._real(program))
        return self.run(f"{sys.executable} program.py")

    def _real(self, text: str) -> str:
        for shown, real in self._shown.items():
            text = text.replace(shown, real)
        return text


@contextmanager
def shell() -> Iterator[Shell]:
    """A shell whose server runs until the end."""
    with TemporaryDirectory() as folder:
        opened = Shell(Path(folder))
        try:
            yield opened
        finally:
            opened.server.stop()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""

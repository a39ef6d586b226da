"""A program that becomes the engine: ``python -I -S launcher.py PPID OPTIONS COMMAND…``, with OPTIONS as JSON.

On Linux, the kernel kills the engine when the server ends, even by SIGKILL (prctl(2), PR_SET_PDEATHSIG). Elsewhere, an
engine ends when its input closes, which it notices between two requests. The options are ``sandbox`` (whether to enter
the sandbox) and ``read`` (files and folders that the engine can read in the sandbox, besides its libraries).
"""

import ctypes
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Settings of glibc's allocator: a block of 64 KB or more goes back to the system when it is freed, and memory is in
pages of 2 MB where the system has them for programs that ask (``transparent_hugepage``).

Tables grow by copying, and waiting events are in blocks of 64 KB. Otherwise both would remain between small blocks.
A load of 12 million events takes a seventh less time with large pages, and 4 % more memory while it runs.
https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html
"""


def main() -> None:
    """Replace this process with the command."""
    parent, options, command = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the server ended before prctl took effect
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, and their children, ignore SIGINT
    environment: dict[str, str] = dict(os.environ)
    try:
        if options["sandbox"]:
            environment = _enter_sandbox(command[0], options["read"])
        os.execve(command[0], command, environment | ALLOCATOR)  # noqa: S606 - this is the launcher's purpose
    except OSError as error:
        sys.exit(f"{command[0]} can't be run: {error.strerror}.")


def _enter_sandbox(binary: str, readable_paths: list[str]) -> dict[str, str]:
    """Enter the sandbox, and return the engine's environment variables."""
    sys.path.append(os.path.dirname(__file__))  # noqa: PTH120 - pathlib takes longer to import than all else here
    import sandbox  # type: ignore[import-not-found] # noqa: PLC0415 - the path is extended only now

    with open(binary, "rb") as file:  # noqa: PTH123
        if file.read(2) == b"#!":
            sys.exit(
                f"{binary} is a script, and an engine in a sandbox can't start another program: name the engine"
                " itself, or set TRACEDOCK_ENGINE_SANDBOX=off."
            )
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # close the files that the server had open
    sandbox.enter(binary, readable_paths)
    return dict(sandbox.environment())


if __name__ == "__main__":
    main()

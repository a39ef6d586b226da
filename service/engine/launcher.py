"""Becomes the engine, after tying its life to the server's: run as ``python -I -S launcher.py PPID COMMAND…``.

On Linux the kernel kills the engine when the server ends, also by SIGKILL (prctl(2), PR_SET_PDEATHSIG). Elsewhere
an engine ends when its input closes, which it notices between two requests.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the server ended before the kernel was asked to watch it
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored by what a script's shell starts in the background
    try:
        os.execv(command[0], command)  # noqa: S606 - this is the launcher's purpose
    except OSError as error:
        sys.exit(f"{command[0]} can't be run: {error.strerror}.")


if __name__ == "__main__":
    main()

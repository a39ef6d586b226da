"""The console script `tracedock`: the full command line where the server is installed, else the client's commands."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        _run_installed()
    except KeyboardInterrupt:  # while the modules are imported; later, the command line reports it
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit("The command line needs the package tracedock-server.")


def _run_installed() -> None:
    """Run the command line of the server, which exits; return if it is not installed."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import: Ctrl-C must not show a traceback

    installed = entry_points()
    group = "tracedock.command"
    commands = installed.select(group=group) if hasattr(installed, "select") else installed.get(group, ())
    for command in commands:
        command.load()()
        sys.exit()

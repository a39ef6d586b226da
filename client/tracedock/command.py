"""The console script `tracedock`: the full command line where the server is installed, else the client's commands."""

import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run the command line."""
    installed = entry_points()
    group = "tracedock.command"
    commands = installed.select(group=group) if hasattr(installed, "select") else installed.get(group, ())
    try:
        for command in commands:
            command.load()()
            return
    except KeyboardInterrupt:  # while the modules are imported; later, the command line reports it
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit("The command line needs the package tracedock-server.")

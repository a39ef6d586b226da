"""Entry of all child processes: ``python -m service.jobs.children KIND [ARGUMENT...]``."""

import os
import sys
import traceback
from importlib import import_module

from service.jobs.children.channel import ServerChannel
from service.jobs.children.kinds import ENTRIES, Kind


def main(kind: str, *arguments: str) -> int:
    """Run a child of the given kind and return its exit status."""
    status: int = import_module(ENTRIES[Kind(kind)]).main(ServerChannel(), *arguments)
    return status


if __name__ == "__main__":
    try:
        code = main(*sys.argv[1:])
    except BrokenPipeError:  # the server no longer reads
        code = 1
    except BaseException:  # noqa: BLE001 - the process ends here, and its log needs the traceback of any error
        traceback.print_exc()
        code = 1
    os._exit(code)  # all output is flushed; an orderly exit would wait for the listening thread and for DuckDB

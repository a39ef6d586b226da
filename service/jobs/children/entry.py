"""Runs a child in this process, and ends the process."""

import os
import sys
import traceback
from importlib import import_module
from typing import NoReturn

from setproctitle import setproctitle

from service.jobs.children.channel import ServerChannel
from service.jobs.children.kinds import ENTRIES, Kind, title_of


def run_child(kind: str, *arguments: str) -> NoReturn:
    """Run a child of the given kind on standard input and output; the process ends with the child's exit status."""
    try:
        setproctitle(title_of(Kind(kind)))
        status: int = import_module(ENTRIES[Kind(kind)]).main(ServerChannel(), *arguments)
    except ConnectionError:  # the server no longer reads
        status = 1
    except BaseException:  # noqa: BLE001 - the process ends here, and its log needs the traceback of any error
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)  # all output is flushed; an orderly exit would wait for the listening thread and for DuckDB

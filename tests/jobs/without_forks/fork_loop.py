"""The fork server on a system that refuses each fork."""

import os
import sys

from service.jobs.children import fork_loop


def refuse() -> int:
    raise BlockingIOError(11, "Resource temporarily unavailable")


os.fork = refuse
fork_loop.main(*sys.argv[1:])

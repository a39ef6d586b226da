"""Entry of a child that is started without a fork server: ``python -m service.jobs.children KIND [ARGUMENT...]``."""

import sys

from service.jobs.children.entry import run_child

if __name__ == "__main__":
    run_child(*sys.argv[1:])

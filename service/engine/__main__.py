"""``python -m service.engine``: install the engine and the UI into this environment, and print their paths."""

import sys
import time

from service.engine.trace_processor.provision import provide
from service.settings import Settings
from service.trace.errors import EngineUnavailable


def main() -> int:
    """Install the missing components and print their paths; returns the exit status, 1 if this fails."""
    started = time.monotonic()
    try:
        engine, ui = provide(Settings())
    except EngineUnavailable as error:
        sys.stderr.write(f"{error.detail}\n")
        return 1
    sys.stdout.write(f"engine {engine}\nui     {ui}\nverified in {time.monotonic() - started:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

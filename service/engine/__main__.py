"""``python -m service.engine``: fetch the engine and the UI into this environment, and say what was done."""

import sys
import time

from service.engine.provision import provide
from service.settings import Settings
from service.trace.errors import EngineUnavailable


def main() -> int:
    """Fetch what is missing; 1 if it could not be had."""
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

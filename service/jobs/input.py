"""The end of a process that someone else has started, and that nobody wants any more."""

import os
import sys
import threading


def end_with_input() -> None:
    """End this process when its input closes, which its parent holds open for as long as it lives and wants it."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

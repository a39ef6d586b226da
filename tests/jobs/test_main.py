"""`python -m service.jobs` compiles all code that ingests and questions need."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from service.jobs.__main__ import main
from service.streaming.scan.compiled import _Cache
missed, load = [], _Cache.load_overload
def noted(self, *args):
    found = load(self, *args)
    if found is None:
        missed.append(str(self))
    return found
_Cache.load_overload = noted
main()
print(missed)
"""


def test_compiling_ahead_compiles_everything(tmp_path: Path) -> None:
    def missed() -> str:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=True
        )
        return run.stdout.decode().strip()

    missed()
    assert missed() == "[]"
    assert [*tmp_path.iterdir()] == []

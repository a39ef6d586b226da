"""What is compiled is compiled ahead: no question of the trace that this is done with goes unanswered."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from numba.core.caching import Cache
from service.jobs.__main__ import main
missed, load = [], Cache.load_overload
def noted(self, *args):
    found = load(self, *args)
    if found is None:
        missed.append(str(self))
    return found
Cache.load_overload = noted
main()
print(missed)
"""


def test_every_question_is_asked_and_nothing_is_compiled_again(tmp_path: Path) -> None:
    def missed() -> str:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=True
        )
        return run.stdout.decode().strip()

    missed()
    assert missed() == "[]"
    assert [*tmp_path.iterdir()] == []

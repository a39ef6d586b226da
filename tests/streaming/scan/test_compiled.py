"""The reader is compiled once, and anew when any of its sources changes."""

import os
import subprocess
import sys
from pathlib import Path

from service.streaming.scan import compiled


def test_machine_code_lies_in_a_folder_named_after_all_sources(tmp_path: Path) -> None:
    package = Path(compiled.__file__).parent
    copy = tmp_path / "scan"
    copy.mkdir()
    for source in package.glob("*.py"):
        (copy / source.name).write_bytes(source.read_bytes())

    def folder() -> str:
        code = f"import runpy; print(runpy.run_path({str(copy / 'compiled.py')!r})['_FOLDER'])"
        asked = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return asked.stdout.strip()

    before = folder()
    assert before == str(compiled._FOLDER)
    (copy / "grammar.py").write_text("changed")
    after = folder()
    os.rmdir(after)  # noqa: PTH106 - nothing is in it
    assert after != before

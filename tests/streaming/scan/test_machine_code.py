"""The folder of cached machine code changes with the sources that the compiled functions share."""

import subprocess
import sys
from pathlib import Path

from service.streaming.scan import machine_code


def test_folder_is_named_after_all_sources_of_the_reader(tmp_path: Path) -> None:
    package = tmp_path / "scan"
    package.mkdir()
    for source in Path(machine_code.__file__).parent.glob("*.py"):
        (package / source.name).write_bytes(source.read_bytes())

    def folder() -> Path:
        code = f"import runpy; print(runpy.run_path({str(package / 'machine_code.py')!r})['folder']().path)"
        process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return Path(process.stdout.strip())

    first_folder = folder()
    place = machine_code.folder()
    assert place
    assert first_folder == place.path
    (package / "grammar.py").write_text("changed")
    second_folder = folder()
    second_folder.rmdir()
    assert second_folder != first_folder

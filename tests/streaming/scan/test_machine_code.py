"""The folder of cached machine code changes with the sources that the compiled functions share."""

import subprocess
import sys
from pathlib import Path

from service.streaming.scan import machine_code


def test_folder_is_named_after_all_sources_of_the_reader(tmp_path: Path) -> None:
    service = Path(machine_code.__file__).parents[2]
    for part in ("streaming/scan", "formats/memory_snapshot", "rendering/fuchsia", "rendering/pftrace"):
        (tmp_path / part).mkdir(parents=True)
        for source in (service / part).glob("*.py"):
            (tmp_path / part / source.name).write_bytes(source.read_bytes())
    package = tmp_path / "streaming" / "scan"

    def folder() -> Path:
        code = f"import runpy; print(runpy.run_path({str(package / 'machine_code.py')!r})['folder']().path)"
        process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return Path(process.stdout.strip())

    first_folder = folder()
    place = machine_code.folder()
    assert place
    assert first_folder == place.path
    folders = [first_folder]
    for changed in ("scan/grammar", "memory_snapshot/records", "fuchsia/words", "pftrace/wire"):
        [source] = tmp_path.glob(f"*/{changed}.py")
        source.write_text("changed")
        folders.append(folder())
    for made in folders[1:]:
        made.rmdir()
    assert len({*folders}) == 5

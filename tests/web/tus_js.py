"""tus-js-client for the browser: `python -m tests.web.tus_js` fetches it with npm, and verifies its digest."""

import base64
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.3.1"
SHA512 = "ZLeYmjrkaU1fUsKbIi8JML52uAocjEZtBx4DKjRrqzrZa0O4MYwT6db+oqePlspV+FxXJAyFBc/L5gwUi2OFsg=="
SCRIPT = Path(sysconfig.get_path("data"), "share", "tracedock", f"tus-js-client-{VERSION}", "tus.min.js")


def fetch() -> str:
    """Fetch the script if it is missing; return the reason if that fails, else an empty text."""
    npm = shutil.which("npm")
    if SCRIPT.exists():
        return ""
    if npm is None:
        return "There is no npm here: the test of tus-js-client will skip."
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", "--silent", f"tus-js-client@{VERSION}"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        rows = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not rows:
            return f"npm could not fetch tus-js-client, whose test will skip: {done.stderr.strip()[-300:]}"
        digest = base64.b64encode(hashlib.sha512(rows[0].read_bytes()).digest()).decode()
        if digest != SHA512:
            sys.exit(f"npm fetched a tus-js-client with the SHA-512 {digest}, not {SHA512}: it is not used.")
        with tarfile.open(rows[0]) as archive:
            member = archive.extractfile("package/dist/tus.min.js")
            if member is None:
                sys.exit("The package tus-js-client holds no dist/tus.min.js.")
            SCRIPT.parent.mkdir(parents=True, exist_ok=True)
            SCRIPT.write_bytes(member.read())
    return ""


if __name__ == "__main__":
    if message := fetch():
        sys.stdout.write(f"{message}\n")

"""Scripts for the browser that only tests use: `python -m tests.web.npm_scripts` fetches them with npm."""

import base64
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(sysconfig.get_path("data"), "share", "tracedock")


@dataclass(frozen=True)
class NpmScript:
    """A script in a package of npm.

    Attributes:
        package: name of the package.
        version: its version.
        sha512: the digest of the package, in base64.
        member: path of the script in the package.
    """

    package: str
    version: str
    sha512: str
    member: str

    @property
    def path(self) -> Path:
        """The path of the script on this machine."""
        return SCRIPTS / f"{self.package}-{self.version}" / Path(self.member).name

    @property
    def reason_to_skip(self) -> str:
        """The reason for which a test skips if the script is missing."""
        return f"{self.package} is missing: `python -m tests.web.npm_scripts` fetches it"


TUS = NpmScript(
    "tus-js-client",
    "4.3.1",
    "ZLeYmjrkaU1fUsKbIi8JML52uAocjEZtBx4DKjRrqzrZa0O4MYwT6db+oqePlspV+FxXJAyFBc/L5gwUi2OFsg==",
    "dist/tus.min.js",
)
"""The client of resumable uploads, https://github.com/tus/tus-js-client."""
AXE = NpmScript(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    "axe.min.js",
)
"""Rules of accessibility, https://github.com/dequelabs/axe-core."""


def fetch(script: NpmScript) -> str:
    """Fetch a script if it is missing; return the reason if that fails, else an empty text."""
    npm = shutil.which("npm")
    if script.path.exists():
        return ""
    if npm is None:
        return f"There is no npm here: the tests with {script.package} will skip."
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", "--silent", f"{script.package}@{script.version}"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not archives:
            return f"npm could not fetch {script.package}, whose tests will skip: {done.stderr.strip()[-300:]}"
        digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if digest != script.sha512:
            sys.exit(f"npm fetched a {script.package} with the SHA-512 {digest}, not {script.sha512}: it is not used.")
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(f"package/{script.member}")
            if member is None:
                sys.exit(f"The package {script.package} holds no {script.member}.")
            script.path.parent.mkdir(parents=True, exist_ok=True)
            script.path.write_bytes(member.read())
    return ""


if __name__ == "__main__":
    for message in filter(None, map(fetch, (TUS, AXE))):
        sys.stdout.write(f"{message}\n")

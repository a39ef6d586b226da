"""Which of an engine's guards this machine offers, found out by trying them on a process that does nothing else."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from service.engine import sandbox
from service.settings import Settings
from service.trace.errors import EngineUnavailable

_TRIAL_S = 20.0


@dataclass(frozen=True)
class Guards:
    """What is on once an engine is shut in.

    Attributes:
        limits: no file of its own, no core dump, few open files (setrlimit).
        no_new_privs: no program gives it more rights.
        landlock: version of the kernel's Landlock ABI, which bounds files, from 4 on TCP, from 6 on signals; 0: none.
        seccomp: no sockets and no new processes.
    """

    limits: bool
    no_new_privs: bool
    landlock: int
    seccomp: bool

    def __str__(self) -> str:
        """Those that are on, and those that are not."""
        on = [name for name, is_on in self._named() if is_on]
        return ", ".join(on) + (f"; missing here: {', '.join(self.missing)}" if self.missing else "")

    @property
    def missing(self) -> list[str]:
        """Those that this machine doesn't offer."""
        return [name for name, is_on in self._named() if not is_on]

    def _named(self) -> list[tuple[str, bool]]:
        landlock = f"Landlock ABI {self.landlock}" if self.landlock else "Landlock"
        return [
            (landlock, self.landlock > 0),
            ("seccomp", self.seccomp),
            ("no_new_privs", self.no_new_privs),
            ("resource limits", self.limits),
        ]


@cache
def guards() -> Guards:
    """The guards that engines get here; a process tries them, and what they should stop, for good.

    Raises:
        EngineUnavailable: one is there but can't be set up, or doesn't hold.
    """
    command = [sys.executable, "-I", "-S", sandbox.__file__]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_S, check=True)  # noqa: S603
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or str(error)
        raise EngineUnavailable(f"The sandbox of engines can't be set up: {said.strip()[-500:]}") from error
    found = json.loads(trial.stdout)
    return Guards(bool(found["limits"]), bool(found["no_new_privs"]), found["landlock"], bool(found["seccomp"]))


def in_words(settings: Settings) -> str:
    """The guards of the engines under these settings, for the log and the doctor.

    Raises:
        EngineUnavailable: the settings require guards that this machine doesn't offer, or one doesn't hold.
    """
    if settings.engine_sandbox == "off":
        return "off"
    found = guards()
    if settings.engine_sandbox == "required" and found.missing:
        raise EngineUnavailable(
            f"Engines must be shut in (TRACEDOCK_ENGINE_SANDBOX=required), but this machine lacks: "
            f"{', '.join(found.missing)}."
        )
    return str(found)

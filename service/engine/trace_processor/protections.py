"""The sandbox's protections that this machine offers, determined by a trial in a separate process."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from service.engine.trace_processor import sandbox
from service.settings import Settings
from service.trace.errors import EngineUnavailable

_TRIAL_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Protections:
    """The protections that are on in the sandbox.

    Attributes:
        limits: no writes to files, no core dumps, few open files (setrlimit).
        no_new_privs: no program gains privileges.
        landlock: version of the kernel's Landlock ABI; 0 for none. Landlock restricts files, from version 4 on
            also TCP, and from version 6 on also signals.
        seccomp: no sockets and no new processes.
    """

    limits: bool
    no_new_privs: bool
    landlock: int
    seccomp: bool

    def __str__(self) -> str:
        """Return the protections that are on, and those that are missing, as text."""
        on = [name for name, is_on in self._by_name() if is_on]
        return ", ".join(on) + (f"; missing here: {', '.join(self.missing)}" if self.missing else "")

    @property
    def missing(self) -> list[str]:
        """Protections that this machine does not offer."""
        return [name for name, is_on in self._by_name() if not is_on]

    def _by_name(self) -> list[tuple[str, bool]]:
        landlock = f"Landlock ABI {self.landlock}" if self.landlock else "Landlock"
        return [
            (landlock, self.landlock > 0),
            ("seccomp", self.seccomp),
            ("no_new_privs", self.no_new_privs),
            ("resource limits", self.limits),
        ]


@cache
def available() -> Protections:
    """Return the protections that this machine offers. A trial process turns them on and attempts forbidden actions.

    Raises:
        EngineUnavailable: a protection can't be turned on, or has no effect.
    """
    command = [sys.executable, "-I", "-S", sandbox.__file__]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT_S, check=True)  # noqa: S603
    except subprocess.SubprocessError as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise EngineUnavailable(f"The sandbox of engines can't be set up: {reason.strip()[-500:]}") from error
    on = json.loads(trial.stdout)
    return Protections(bool(on["limits"]), bool(on["no_new_privs"]), on["landlock"], bool(on["seccomp"]))


def summary(settings: Settings) -> str:
    """Return the protections of engines under these settings as text.

    Raises:
        EngineUnavailable: the settings require protections that this machine lacks, or one has no effect.
    """
    if settings.engine_sandbox == "off":
        return "off"
    protections = available()
    if settings.engine_sandbox == "required" and protections.missing:
        raise EngineUnavailable(
            f"Engines must run in a sandbox (TRACEDOCK_ENGINE_SANDBOX=required), but this machine lacks: "
            f"{', '.join(protections.missing)}."
        )
    return str(protections)

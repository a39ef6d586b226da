"""Defaults, choices and exit codes of `gate`, `baseline` and `history`; a command line imports only these to start."""

from __future__ import annotations

from tracedock.errors import UnreachableError

LEVEL = 0.05
"""Probability, at most, that a gate fails though no figure exceeds what its rule allows."""
WARMUP = 1
"""Steps at the start of each cycle that are left out.

The first step that a profiler records has no step before it whose work is still running on the device, and may bear
the start of the profiler. PyTorch's own schedules have a `warmup` for the latter.
"""
LIMIT = 20
"""Number of uploads of a history."""
WAIT_S = 600.0
"""Seconds to wait for traces that are not ready."""

PASSED, REGRESSION, REFUSED, UNREACHABLE, UNDECIDED = 0, 1, 2, 3, 4
"""Exit codes of `gate`: a refusal is never mistaken for a regression."""
EXIT_CODES = (
    "Exit codes: 0 passed, 1 regression, 2 refused or wrong usage, 3 no server reached, 4 undecided: too few steps."
)
FORMS = ("table", "json", "junit", "markdown")
"""Forms of a verdict."""
WHEN_UNDECIDED = {"stop": UNDECIDED, "pass": PASSED, "fail": REGRESSION}
"""Exit codes for an undecided gate, by the value of `--undecided`."""


def exit_code_of(error: Exception) -> int:
    """Return the exit code of an error, which is never that of a regression."""
    return UNREACHABLE if isinstance(error, UnreachableError) else REFUSED

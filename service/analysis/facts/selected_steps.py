"""Steps that a selection or a part of a trace is about: it may lack the work of other steps."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from service.analysis.facts.scope import Scope
from service.store.export import envelope
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.cutting.part_steps import PartSteps  # loads numba, which describing questions does without

_KEPT_MAX = 16
"""Number of traces whose steps are kept: the selections of a trace, such as windows that are dragged, share them."""


def part_steps(scope: Scope) -> "PartSteps | None":
    """Return the steps that a selection or a part of a trace is about; None for a whole trace.

    Raises:
        ExportFailed: the columns can't be read.
    """
    from service.cutting.part_steps import recorded_steps  # noqa: PLC0415 - loads numba, which the server does without

    if scope.selection is None or scope.time is None:
        return recorded_steps(envelope(scope.columns, redact=False))
    return _steps_of_trace(_Trace(scope.columns, scope.summary)).of_selection(scope.selection, scope.time)


@dataclass(frozen=True)
class _Trace:
    """A trace; its summary, which belongs to the columns, is not compared."""

    columns: Path
    summary: Summary = field(compare=False)


@lru_cache(maxsize=_KEPT_MAX)
def _steps_of_trace(trace: _Trace) -> "PartSteps":
    from service.cutting.part_steps import PartSteps  # noqa: PLC0415 - loads numba, which the server does without

    return PartSteps.of_trace(trace.columns, trace.summary)

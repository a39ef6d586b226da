"""Links from the slices on devices to their launches, operators and steps.

"Work" means the slices of kernels, copies and memsets (`GPU_CATEGORIES`). The rules, in order:

1. Work belongs to its launch: the first runtime or driver call with its correlation id.
2. The launch belongs to the innermost operator that is open on its thread when the launch begins.
3. Work that gets no operator from its launch belongs to the operator with the same External id, if the External ids
   of the trace are known to be operator ids.
4. Work belongs to the step in which its launch began (`service.attribution.steps`). Work without a launch belongs to
   the step in which it began.

Kineto writes the correlation id as External id when it knows no operator, and it also numbers operators from 1.
An External id alone therefore proves nothing (https://github.com/pytorch/kineto, ``libkineto/src/output_json.cpp``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from service.attribution.nesting import Flags, Ints
from service.trace.summary import NOT_OPERATORS, STEP_PREFIX, ExternalIdKind, Summary

RULES = ("launch", "graph", "external_id", "launch_outside_operators", "graph_outside_operators", "no_launch")
"""Rules that give work its operator; the last three are the reasons why work has none."""

LAUNCH, GRAPH, EXTERNAL_ID, LAUNCH_OUTSIDE, GRAPH_OUTSIDE, NO_LAUNCH = range(len(RULES))


def is_operator(name: str | None) -> bool:
    """Return whether the name of an event in an operator category is that of an operator.

    Traces from before 2022 have annotations in operator categories, too.
    """
    return name not in NOT_OPERATORS and not (name or "").startswith(STEP_PREFIX)


@dataclass(frozen=True)
class Links:
    """Links of the slices on devices, in order of time.

    Args:
        rows: row of each slice among the events in order of time.
        is_work: slices that are work; the others are waits and annotations shown on devices.
        launches: row of each slice's launch, or `NONE`.
        operators: row of each slice's operator, or `NONE`.
        rules: index into `RULES` of the rule that gives each slice its operator.
        steps: number of each slice's step, or `NO_STEP`.
        external_ids: meaning of External ids in this trace.
    """

    rows: Ints
    is_work: Flags
    launches: Ints
    operators: Ints
    rules: Ints
    steps: Ints
    external_ids: ExternalIdKind

    def of_work(self) -> "Links":
        """Return the links of work alone."""
        return self if self.is_work.all() else self.taken(self.is_work)

    def taken(self, chosen: Ints | Flags) -> "Links":
        """Return some of the links: those that are flagged, or those at indices, in their order."""
        return Links(
            rows=self.rows[chosen],
            is_work=self.is_work[chosen],
            launches=self.launches[chosen],
            operators=self.operators[chosen],
            rules=self.rules[chosen],
            steps=self.steps[chosen],
            external_ids=self.external_ids,
        )

    @classmethod
    def joined(cls, parts: Sequence["Links"]) -> "Links":
        """Join consecutive parts of the links of a trace, at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            rows=np.concatenate([part.rows for part in parts]),
            is_work=np.concatenate([part.is_work for part in parts]),
            launches=np.concatenate([part.launches for part in parts]),
            operators=np.concatenate([part.operators for part in parts]),
            rules=np.concatenate([part.rules for part in parts]),
            steps=np.concatenate([part.steps for part in parts]),
            external_ids=parts[0].external_ids,
        )


def external_ids_in_summary(summary: Summary) -> ExternalIdKind:
    """Return the meaning of External ids that a trace's summary records."""
    return _external_id_kind(summary.attribution.get("external_ids"))


def external_ids_in_envelope(envelope: Mapping[str, Any]) -> ExternalIdKind:
    """Return the meaning of External ids in the whole trace, as the envelope of a part of it records."""
    origin = envelope.get("tracedock")
    part = origin.get("part") if isinstance(origin, Mapping) else None
    return _external_id_kind(part.get("external_ids") if isinstance(part, Mapping) else None)


def _external_id_kind(value: object) -> ExternalIdKind:
    return next((kind for kind in get_args(ExternalIdKind) if kind == value), "unknown")

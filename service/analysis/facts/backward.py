"""The forward operator of each operator of the backward pass."""

from typing import TYPE_CHECKING

import numpy as np

from service.analysis.facts.host import IS_OP, Host
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope

if TYPE_CHECKING:
    from service.attribution.nesting import Flags, Indices

_SEQUENCES = f"""
SELECT row, try_cast(sequence AS BIGINT) AS sequence, coalesce(try_cast(forward_thread AS BIGINT), 0) > 0 AS is_backward
FROM (
    SELECT
        row, regexp_extract(args, '"Sequence number":\\s*([0-9]{{1,18}})', 1) AS sequence,
        regexp_extract(args, '"Fwd thread id":\\s*([0-9]{{1,18}})', 1) AS forward_thread
    FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {IS_OP} AND contains(args, '"Sequence number"')
)
WHERE sequence <> '' ORDER BY row
"""


def forward_operators(scope: Scope, host: Host) -> "Indices":
    """The place of the forward operator of each slice of the host, `NONE` for what is not of the backward pass.

    It is the operator of the same sequence number that began last in the forward pass: the one that made the node of
    the backward graph (https://github.com/pytorch/pytorch, ``torch/csrc/profiler/kineto_shim.cpp``). Threads number
    by themselves: where several have that number, nothing tells which is meant.
    """
    from service.attribution.nesting import NONE, first_matches  # noqa: PLC0415 - loads numba, which the server does without

    told = scope.table(_SEQUENCES)
    rows, sequences = told["row"].to_numpy(), told["sequence"].to_numpy()
    is_backward = told["is_backward"].to_numpy()
    places = host.places(rows)
    known = places != NONE
    forward, backward = np.flatnonzero(known & ~is_backward), np.flatnonzero(known & is_backward)
    last_first = forward[::-1]
    usable = last_first[~_is_shared(sequences[last_first], host.threads[places[last_first]])]
    found = np.full(len(host), NONE, np.int32)
    of = first_matches(sequences[usable] + 1, sequences[backward] + 1)
    matched = np.append(places[usable], np.int32(NONE))[of]
    matched[rows[backward] < np.append(rows[usable], 0)[of]] = NONE
    found[places[backward]] = matched
    return found


def _is_shared(sequences: Ints, threads: "Indices") -> "Flags":
    """Flag the sequence numbers that more than one thread uses."""
    pairs = np.unique(np.stack([sequences, threads.astype(np.int64)]), axis=1)
    numbers, counts = np.unique(pairs[0], return_counts=True)
    shared: Flags = np.isin(sequences, numbers[counts > 1])
    return shared

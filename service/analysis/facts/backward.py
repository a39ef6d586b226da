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
    """Return the index of the forward operator of each slice of the host; `NONE` outside the backward pass.

    The forward operator created the node of the backward graph. It is the last operator of the forward pass with the
    same sequence number (https://github.com/pytorch/pytorch, ``torch/csrc/profiler/kineto_shim.cpp``). Each thread
    numbers its own sequence, so a number used by several threads is ambiguous and yields `NONE`.
    """
    from service.attribution.nesting import NONE, first_matches  # noqa: PLC0415 - loads numba, which the server does without

    table = scope.table(_SEQUENCES)
    rows, sequences = table["row"].to_numpy(), table["sequence"].to_numpy()
    is_backward = table["is_backward"].to_numpy()
    slices = host.indices_of(rows)
    in_host = slices != NONE
    forward, backward = np.flatnonzero(in_host & ~is_backward), np.flatnonzero(in_host & is_backward)
    last_first = forward[::-1]
    usable = last_first[~_is_shared(sequences[last_first], host.threads[slices[last_first]])]
    match = first_matches(sequences[usable] + 1, sequences[backward] + 1)
    forward_of_backward = np.append(slices[usable], np.int32(NONE))[match]
    forward_of_backward[rows[backward] < np.append(rows[usable], 0)[match]] = NONE
    forward_of = np.full(len(host), NONE, np.int32)
    forward_of[slices[backward]] = forward_of_backward
    return forward_of


def _is_shared(sequences: Ints, threads: "Indices") -> "Flags":
    """Flag the sequence numbers that several threads use."""
    pairs = np.unique(np.stack([sequences, threads.astype(np.int64)]), axis=1)
    numbers, counts = np.unique(pairs[0], return_counts=True)
    shared: Flags = np.isin(sequences, numbers[counts > 1])
    return shared

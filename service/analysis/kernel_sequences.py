"""Which sequences of kernels do operators launch, how often, and what do they cost?"""

from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.host import ANNOTATION, OP, host_of
from service.analysis.facts.launches import no_launches_reason
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import RANK, count, ns, number, table_of, word
from service.trace.errors import NotApplicable

SEQUENCES = (
    RANK,
    word("op", "operator or annotation under which the sequence was launched"),
    word(
        "kernels",
        "names of the kernels in order of their starts, joined by ` | `; a long sequence shows only its first names",
    ),
    count("length", "kernels, copies and memsets in the sequence"),
    count("count", "how often this operator launched exactly this sequence"),
    ns("device", "sum of the durations of the work in all these sequences"),
    ns("host", "sum of the durations of the operators, on the host"),
    number("device_mean_ns", "device time of one sequence", "ns"),
    ns("first_start", "start of the first of these operators"),
)

_SEQUENCES = """
WITH sequences AS (
    SELECT root, list(name ORDER BY start_ns, position) AS kernels, sum(dur_ns) AS device_ns
    FROM launched_under GROUP BY root HAVING count(*) >= $min_length
), counted AS (
    SELECT
        op, kernels, count(*) AS count, sum(device_ns) AS device_ns, sum(host_ns) AS host_ns,
        min(op_start_ns) AS first_start_ns
    FROM sequences JOIN roots USING (root) GROUP BY op, kernels
)
SELECT
    op, kernels[:$names_max] AS kernels, len(kernels) AS length, count, device_ns::BIGINT AS device_ns,
    host_ns::BIGINT AS host_ns, (device_ns / count)::DOUBLE AS device_mean_ns, first_start_ns
FROM counted ORDER BY count DESC, device_ns DESC, first_start_ns LIMIT $top
"""


class SequenceParameters(WorkParameters):
    """Parameters of `kernel_sequences`."""

    operator: str = Field("", description="part of the operators' names; by default all operators are searched")
    min_length: int = Field(3, ge=1, description="minimum number of kernels, copies and memsets in a sequence")
    names_max: int = Field(100, ge=1, le=10_000, description="maximum number of names shown for a sequence")
    top: int = Field(100, ge=1, le=1_000_000, description="maximum number of sequences, the most frequent first")


def answer(scope: Scope, parameters: SequenceParameters) -> Tables:
    """Return the most frequent sequences of a rank."""
    scope.define_work(parameters, typed=False)
    work = scope.table("SELECT position, name, start_ns, dur_ns, coalesce(launch_row, -1) AS launch FROM work")
    names = work["name"].combine_chunks().dictionary_encode()
    roots, root_of_work = _roots(scope, parameters, work)
    is_under = root_of_work >= 0
    under = {"root": root_of_work, "name": names.indices.fill_null(-1).to_numpy()}
    under |= {column: work[column].to_numpy() for column in ("start_ns", "position", "dur_ns")}
    scope.db.register("launched_under", pa.table({column: values[is_under] for column, values in under.items()}))
    scope.db.register("roots", roots)
    limits = {name: getattr(parameters, name) for name in ("min_length", "names_max", "top")}
    sequences = scope.table(_SEQUENCES, **limits).to_pydict()
    if not sequences["op"]:
        raise NotApplicable(_no_sequences_reason(parameters, len(roots), int(is_under.sum())))
    words = [*names.dictionary.to_pylist(), ""]  # work without a name has the index -1, and so this last entry
    sequences["kernels"] = [
        _joined([words[name] for name in kernels], length)
        for kernels, length in zip(sequences["kernels"], sequences["length"], strict=True)
    ]
    sequences["rank"] = [scope.rank] * len(sequences["op"])
    return {"sequences": table_of(SEQUENCES, sequences)}


def _no_sequences_reason(parameters: SequenceParameters, operators: int, work: int) -> str:
    """Explain why there is no sequence."""
    if not operators:
        return f"No operator's name contains '{parameters.operator}'."
    if not work:
        return "The selected operators launched no work on a device."
    return f"None of {operators} operators launched at least {parameters.min_length} kernels, copies or memsets."


def _joined(names: list[str], length: int) -> str:
    """Join the names of a sequence; `length` is the full length, with the names that are not shown."""
    rest = [f"… and {length - len(names)} more"] if length > len(names) else []
    return " | ".join([*names, *rest])


def _roots(scope: Scope, parameters: SequenceParameters, work: pa.Table) -> tuple[pa.Table, Any]:
    """Return the outermost selected operators, and for each row of `work` the operator that launched it.

    The operators are indices (int64), or NONE for work that no selected operator launched.
    """
    from service.attribution.nesting import NONE, nearest_marked, parents_of  # noqa: PLC0415 - loads numba

    host = host_of(scope)
    is_named = np.array([parameters.operator in name for name in host.words], bool)
    chosen = is_named[host.names] & np.isin(host.kinds, (OP, ANNOTATION) if parameters.operator else (OP,))
    parents = parents_of(host.threads, host.starts, host.ends)
    inner = np.append(nearest_marked(parents, chosen), NONE)  # NONE is -1: indexing with it reads this last entry
    outermost = chosen & (inner[parents] == NONE)
    root = np.append(nearest_marked(parents, outermost), NONE)
    call = host.indices_of(work["launch"].to_numpy())
    indices = np.flatnonzero(outermost)
    roots = {
        "root": indices,
        "op": pa.array(host.words, pa.string()).take(pa.array(host.names[indices])),
        "op_start_ns": host.starts[indices],
        "host_ns": host.durations[indices],
    }
    return pa.table(roots), root[call]


QUESTION = Question(
    name="kernel_sequences",
    short_question="Which sequences of kernels do operators launch, how often, and what do they cost?",
    definition="Of each operator whose name contains `operator`, and that lies in no other such operator: the kernels,"
    " copies and memsets that calls in it launched, in order of their starts. Operators of one name with the same"
    " sequence are counted together; sequences of fewer than `min_length` are left out. HTA takes only operators"
    " at the lowest depth of the whole trace; this analysis takes every selected operator that no other selected"
    " operator encloses.",
    source="https://hta.readthedocs.io/en/latest/source/features/frequent_cuda_kernels.html",
    tables={"sequences": SEQUENCES},
    parameters=SequenceParameters,
    inapplicable_reason=no_launches_reason,
    answer=answer,
)

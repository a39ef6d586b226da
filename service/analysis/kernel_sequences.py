"""Which sequences of kernels do operators launch, how often, and what do they cost?"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.host import ANNOTATION, KINDS, OP, Host, host_of, read_arrays
from service.analysis.facts.launches import no_launches_reason
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import RANK, count, ns, number, table_of, word
from service.trace.errors import NotApplicable

if TYPE_CHECKING:
    from service.attribution.nesting import Indices  # loads numba, which describing questions does without

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


_WORK = """
SELECT position AS positions, name AS names, start_ns AS starts, dur_ns AS durations,
    coalesce(launch_row, -1) AS launches
FROM work
"""


class SequenceParameters(WorkParameters):
    """Parameters of `kernel_sequences`."""

    operator: str = Field("", description="part of the operators' names; by default all operators are searched")
    min_length: int = Field(3, ge=1, description="minimum number of kernels, copies and memsets in a sequence")
    names_max: int = Field(100, ge=1, le=10_000, description="maximum number of names shown for a sequence")
    top: int = Field(100, ge=1, le=1_000_000, description="maximum number of sequences, the most frequent first")


def answer(scope: Scope, parameters: SequenceParameters) -> Tables:
    """Return the most frequent sequences of a rank."""
    from service.attribution.nesting import NONE, require_countable  # noqa: PLC0415 - loads numba, which the server does without

    with scope.beside(lambda sibling: _roots(host_of(sibling), parameters)) as future_roots:
        work, words = _work(scope, parameters)
        require_countable(work["durations"].sum(dtype=np.float64), "The time of work on devices")
    host, roots = host_of(scope), future_roots.result()
    launches = host.indices_of(work["launches"])
    root_of_work = np.where(launches >= 0, roots[launches], NONE) if len(roots) else launches
    sequences = _Sequences(work, words, root_of_work, parameters.min_length)
    if not len(sequences.roots):
        operators = int((roots == np.arange(len(roots))).sum())
        raise NotApplicable(_no_sequences_reason(parameters, operators, int((root_of_work >= 0).sum())))
    columns = sequences.counted(host, parameters)
    return {"sequences": table_of(SEQUENCES, {**columns, "rank": [scope.rank] * len(columns["op"])})}


def _work(scope: Scope, parameters: SequenceParameters) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of the work that counts, as `_WORK` has them, and the names by code."""
    from service.analysis.facts.device_events import TIMES, device_events  # noqa: PLC0415 - loads numba

    if parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only:
        work = device_events(scope, ("position", "name", "launch", *TIMES))
        names, words = work.names()
        columns = {"positions": work.ints("position"), "launches": work.ints("launch", -1), "names": names}
        return {**columns, "starts": work.starts, "durations": work.ends - work.starts}, words
    scope.define_work(parameters, typed=False)
    columns, texts = read_arrays(scope, _WORK, {"names"})
    return columns, texts["names"]


class _Sequences:
    """The sequences of work that operators launched.

    Args:
        work: columns of `_WORK`.
        words: names by code.
        root_of_work: operator that launched each piece of work; negative for none.
        min_length: minimum length of a sequence.

    Attributes:
        roots: operator of each sequence, in ascending order.
    """

    def __init__(self, work: dict[str, Any], words: list[str], root_of_work: "Indices", min_length: int) -> None:
        from service.attribution.nesting import NONE, path_codes  # noqa: PLC0415 - loads numba, which the server does without

        self._words = words
        order = np.lexsort((work["positions"], work["starts"], root_of_work))
        order = order[np.searchsorted(root_of_work[order], 0) :]
        roots = root_of_work[order]
        self._names = work["names"][order]
        is_first = np.append(True, roots[1:] != roots[:-1])[: len(roots)]
        before = np.where(is_first, NONE, np.arange(-1, len(roots) - 1)).astype(np.int32)
        codes, self._distinct = path_codes(before, self._names)
        firsts = np.flatnonzero(is_first)
        lengths = np.diff(np.append(firsts, len(roots)))
        device_ns = np.add.reduceat(work["durations"][order], firsts) if len(firsts) else firsts
        long = lengths >= min_length
        self._firsts, self._lengths, self._device_ns = firsts[long], lengths[long], device_ns[long]
        self._codes = codes[self._firsts + self._lengths - 1].astype(np.int64)  # of the path to the last name
        self.roots = roots[self._firsts]

    def counted(self, host: Host, parameters: SequenceParameters) -> dict[str, Any]:
        """Return the columns of the most frequent sequences, counted by operator."""
        from service.attribution.nesting import count_by_key, factorize, first_indices, sum_by_key  # noqa: PLC0415 - loads numba

        ops = pa.array(host.words, pa.string()).dictionary_encode()  # a nameless slice has the code of an empty name
        op = ops.indices.to_numpy()[host.names[self.roots]]
        keys, distinct = factorize(op.astype(np.int64) * self._distinct + self._codes)
        firsts, count = first_indices(keys, distinct), count_by_key(keys, distinct)
        device_ns = sum_by_key(keys, self._device_ns, distinct)
        starts = host.starts[self.roots[firsts]]
        chosen = np.lexsort((starts, -device_ns, -count))[: parameters.top]
        kept = firsts[chosen]
        return {
            "op": ops.dictionary.take(pa.array(op[kept])),
            "kernels": [self._joined(index, parameters.names_max) for index in kept.tolist()],
            "length": self._lengths[kept],
            "count": count[chosen],
            "device_ns": device_ns[chosen],
            "host_ns": sum_by_key(keys, host.ends[self.roots] - host.starts[self.roots], distinct)[chosen],
            "device_mean_ns": device_ns[chosen] / count[chosen],
            "first_start_ns": starts[chosen],
        }

    def _joined(self, index: int, names_max: int) -> str:
        """Join the first names of a sequence."""
        first, length = int(self._firsts[index]), int(self._lengths[index])
        names = [self._words[name] for name in self._names[first : first + min(length, names_max)].tolist()]
        rest = [f"… and {length - names_max} more"] if length > names_max else []
        return " | ".join([*names, *rest])


def _no_sequences_reason(parameters: SequenceParameters, operators: int, work: int) -> str:
    """Explain why there is no sequence."""
    if not operators:
        return f"No operator's name contains '{parameters.operator}'."
    if not work:
        return "The selected operators launched no work on a device."
    return f"None of {operators} operators launched at least {parameters.min_length} kernels, copies or memsets."


def _roots(host: Host, parameters: SequenceParameters) -> "Indices":
    """Return the outermost selected operator around each slice of the host, or the slice itself; `NONE` for none.

    Args:
        host: slices of the host.
        parameters: select the operators.
    """
    from service.attribution.nesting import outermost_marked, parents_of  # noqa: PLC0415 - loads numba

    is_named = np.array([parameters.operator in name for name in host.words], bool)
    kinds = (OP, ANNOTATION) if parameters.operator else (OP,)
    is_kind = np.array([kind in kinds for kind in range(len(KINDS))], bool)
    chosen = is_named[host.names] & is_kind[host.kinds]
    return outermost_marked(parents_of(host.threads, host.starts, host.ends), chosen)


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
    is_large=True,
)

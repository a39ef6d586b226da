"""Check for operators that could use matrix cores but do not, by names of kernels and types of inputs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from service.analysis.facts.checks import Check, Evidence, TimelineSpan
from service.analysis.facts.device_properties import capability_of, properties_of
from service.analysis.facts.host import IS_OP
from service.analysis.facts.scope import Scope
from service.analysis.facts.tensor_cores import OPERATORS, on_tensor_cores
from service.trace.kernel_names import precision, uses_matrix_cores
from service.trace.summary import OPERATOR_CATEGORIES

TENSOR_CORES_SINCE = 7
"""Compute capability of NVIDIA's first GPUs with tensor cores."""

_AMD = re.compile(r"AMD|Radeon|Instinct|\bgfx\d", re.IGNORECASE)
_WITH_MFMA = re.compile(r"\bMI[1-9]\d\d")

_REDUCED = frozenset({"bf16", "fp16", "fp8", "fp4", "int8", "int4"})
_FULL = frozenset({"fp32", "fp64"})
_OF_INPUTS = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64"}

_COULD = """
SELECT
    sum(duration) AS total, sum(duration) FILTER (eligible) AS could,
    arg_max(position, duration) FILTER (eligible) AS longest
FROM (
    SELECT
        position, (end_ns - start_ns)::DOUBLE AS duration,
        {operator} IN (SELECT operator FROM eligible) AS eligible
    FROM work WHERE kind = 'kernel' AND {operator} <> {none}
)
"""
_AT = "SELECT name, start_ns, end_ns FROM work WHERE position = $position"
_NAMED = "name IN (" + ", ".join(f"'{name}'" for name in sorted(OPERATORS)) + ")"
_ELIGIBLE_IDS = f"SELECT external_id FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {IS_OP} AND {_NAMED}"
_INPUT_TYPES = f"""
SELECT DISTINCT unnest(regexp_extract_all(listed, '"([^"]*)"', 1)) AS type FROM (
    SELECT regexp_extract(args, '"Input type":\\s*\\[([^\\]]*)', 1) AS listed FROM events
    WHERE ph = 'X' AND {_NAMED}
)
"""


def precisions_of(scope: Scope) -> set[str]:
    """Return the precisions of matrix multiplications, by names of kernels, else by the inputs of operators."""
    precisions = {kernel_precision for name in scope.kernel_names if (kernel_precision := precision(name))}
    if not precisions & (_REDUCED | _FULL):
        types = scope.table(_INPUT_TYPES)["type"].to_pylist()
        precisions |= {_OF_INPUTS[dtype] for dtype in types if dtype in _OF_INPUTS}
    return precisions


def is_reduced(scope: Scope) -> bool:
    """Return whether matrices are multiplied in a precision of 16 bits or fewer."""
    return bool(precisions_of(scope) & _REDUCED)


def matrix_core_check(scope: Scope, *, as_tensorboard: bool) -> Iterator[Check]:
    """Check whether operators could use tensor cores, but no kernel does.

    The result is unknown in three cases: the GPU's properties are unknown; no kernel is known to use tensor cores, and
    the use of some kernels or the share of kernel time is unknown; or the precision is unknown.

    Args:
        scope: scope of the rank, with the view ``work``.
        as_tensorboard: whether to apply TensorBoard's rule for names alone.
    """
    if not scope.has_work:
        return
    eligible = _eligible(scope, as_tensorboard=as_tensorboard)
    scope.db.register("eligible", pa.table({"operator": eligible}))
    operator, none = ("external_id", 0) if as_tensorboard else ("operator_row", -1)
    [times] = scope.table(_COULD.format(operator=operator, none=none)).to_pylist()
    scope.db.unregister("eligible")
    could, total = times["could"] or 0, times["total"]
    value = 100 * could / total if total else None
    if not value and len(eligible):
        value = None  # there are eligible operators, but their kernels are unknown
    uses = {(on_tensor_cores if as_tensorboard else uses_matrix_cores)(name) for name in scope.kernel_names}
    has_cores = _has_matrix_cores(properties_of(scope), as_tensorboard=as_tensorboard)
    applies = None if has_cores is None or (True not in uses and (value is None or None in uses)) else (
        has_cores and True not in uses and bool(value)
    )  # fmt: skip
    precisions = precisions_of(scope) if applies else set()
    if applies and not as_tensorboard and not precisions & (_REDUCED | _FULL):
        applies = None
    longest = scope.table(_AT, position=times["longest"]).to_pylist() if applies else []
    place = TimelineSpan(longest[0]["name"], longest[0]["start_ns"], longest[0]["end_ns"]) if longest else None
    evidence = [
        Evidence("kernels of operators that could use tensor cores", could, "ns", place),
        Evidence("kernels of operators", total or 0, "ns"),
        Evidence("distinct kernel names, none of which uses tensor cores", len(scope.kernel_names), "names"),
    ]
    if precisions:
        names = ", ".join(sorted(precisions))
        evidence.append(Evidence(f"precisions of matrix products: {names}", len(precisions), "precisions"))
    yield Check(
        "tensor_cores", applies, value, 0,
        f"{value or 0:.1f} % of kernel time is spent for operators that could use tensor cores, but no kernel does.",
        place=place, advice=None if as_tensorboard else _advice(precisions), evidence=tuple(evidence),
    )  # fmt: skip


def _eligible(scope: Scope, *, as_tensorboard: bool) -> Any:
    """Return the rows of the operators that could use tensor cores or, by TensorBoard's rules, their External ids."""
    if as_tensorboard:
        return scope.table(_ELIGIBLE_IDS)["external_id"]
    slices = scope.slices()
    eligible = slices.of_categories(OPERATOR_CATEGORIES.__contains__) & slices.host_named(OPERATORS.__contains__)
    return slices.host.rows[eligible]


def _has_matrix_cores(properties: list[Mapping[str, Any]], *, as_tensorboard: bool) -> bool | None:
    """Return whether the first GPU has matrix cores; None if its properties do not show it."""
    gpus = [(str(gpu.get("name")), capability) for gpu in properties if (capability := capability_of(gpu))]
    if not gpus:
        return None
    name, capability = gpus[0]
    if not as_tensorboard and _AMD.search(name):  # AMD's capability numbers mean something else
        return True if _WITH_MFMA.search(name) else None
    return float(capability) >= TENSOR_CORES_SINCE


def _advice(precisions: set[str]) -> str | None:
    """Return advice for operators that compute in a reduced precision; None for the usual advice."""
    if not precisions & _REDUCED:
        return None
    return f"These operators compute in {', '.join(sorted(precisions))} already: make their sizes multiples of 8 or 16."

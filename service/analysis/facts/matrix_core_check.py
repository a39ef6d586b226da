"""Whether operators do without matrix cores that could use them, as names of kernels and types of inputs tell."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.checks import Check, Evidence, TimelineSpan
from service.analysis.facts.device_properties import capability_of, properties_of
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
    sum(lasting) AS whole, sum(lasting) FILTER (eligible) AS could,
    arg_max(position, lasting) FILTER (eligible) AS longest
FROM (
    SELECT
        position, (end_ns - start_ns)::DOUBLE AS lasting,
        {operator} IN (SELECT operator FROM eligible) AS eligible
    FROM work WHERE kind = 'kernel' AND {operator} <> {none}
)
"""
_AT = "SELECT name, start_ns, end_ns FROM work WHERE position = $position"
_INPUT_TYPES = f"""
SELECT DISTINCT unnest(regexp_extract_all(listed, '"([^"]*)"', 1)) AS type FROM (
    SELECT regexp_extract(args, '"Input type":\\s*\\[([^\\]]*)', 1) AS listed FROM events
    WHERE ph = 'X' AND name IN ({", ".join(f"'{name}'" for name in sorted(OPERATORS))})
)
"""


def precisions_of(scope: Scope) -> set[str]:
    """The precisions in which matrices are multiplied, as the names of kernels or else the inputs of operators tell."""
    found = {known for name in scope.kernel_names if (known := precision(name))}
    if not found & (_REDUCED | _FULL):
        types = scope.table(_INPUT_TYPES)["type"].to_pylist()
        found |= {_OF_INPUTS[one] for one in types if one in _OF_INPUTS}
    return found


def is_reduced(scope: Scope) -> bool:
    """Whether matrices are multiplied in a precision of 16 bits or fewer."""
    return bool(precisions_of(scope) & _REDUCED)


def matrix_core_check(scope: Scope, *, as_tensorboard: bool) -> Iterator[Check]:
    """Check whether operators could use tensor cores, and none does.

    Unknown where no name says yes and some say nothing, or where nothing tells the precision.

    Args:
        scope: the rank, with the view ``work``.
        as_tensorboard: go by TensorBoard's names, and by nothing else.
    """
    if not scope.has_work:
        return
    slices = scope.slices()
    eligible = slices.of_categories(OPERATOR_CATEGORIES.__contains__) & slices.host_named(OPERATORS.__contains__)
    operators = slices.host.external_ids if as_tensorboard else slices.host.rows
    scope.db.register("eligible", pa.table({"operator": operators[eligible]}))
    operator, none = ("external_id", 0) if as_tensorboard else ("operator_row", -1)
    [found] = scope.table(_COULD.format(operator=operator, none=none)).to_pylist()
    scope.db.unregister("eligible")
    could, whole = found["could"] or 0, found["whole"]
    value = 100 * could / whole if whole else None
    if not value and np.any(eligible):
        value = None  # there are such operators, but nothing tells which kernels are theirs
    uses = {(on_tensor_cores if as_tensorboard else uses_matrix_cores)(name) for name in scope.kernel_names}
    able = _able(properties_of(scope), as_tensorboard=as_tensorboard)
    wanting = None if able is None or (True not in uses and (value is None or None in uses)) else (
        able and True not in uses and bool(value)
    )  # fmt: skip
    precisions = precisions_of(scope) if wanting else set()
    if wanting and not as_tensorboard and not precisions & (_REDUCED | _FULL):
        wanting = None
    at = scope.table(_AT, position=found["longest"]).to_pylist() if wanting else []
    place = TimelineSpan(at[0]["name"], at[0]["start_ns"], at[0]["end_ns"]) if at else None
    yield Check(
        "tensor_cores", wanting, value, 0,
        f"{value or 0:.0f} % of the time of kernels is in those of operators that could use tensor cores; none does.",
        place=place, advice=None if as_tensorboard else _advice(precisions), evidence=(
            Evidence("kernels of operators that could use tensor cores", could, "ns", place),
            Evidence("kernels of operators", whole or 0, "ns"),
            Evidence("names of kernels, of which none uses tensor cores", len(scope.kernel_names), "names"),
            *(Evidence(f"matrices are multiplied in {one}", 1, "precision") for one in sorted(precisions)),
        ),
    )  # fmt: skip


def _able(properties: list[Mapping[str, Any]], *, as_tensorboard: bool) -> bool | None:
    """Whether the first GPU has matrix cores; None where its properties do not tell."""
    known = [(str(one.get("name")), capability) for one in properties if (capability := capability_of(one))]
    if not known:
        return None
    name, capability = known[0]
    if not as_tensorboard and _AMD.search(name):  # its capability numbers are those of another architecture
        return True if _WITH_MFMA.search(name) else None
    return float(capability) >= TENSOR_CORES_SINCE


def _advice(precisions: set[str]) -> str | None:
    """Advice for matrices that are multiplied in some precisions; None for the usual one."""
    if not precisions & _REDUCED:
        return None
    return f"These operators compute in {', '.join(sorted(precisions))} already: make their sizes multiples of 8 or 16."

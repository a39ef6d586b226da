"""How much time is spent in the regions that the program names, on the host and on devices?"""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.deviations import deviation
from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, Columns, count, ns, number, pct, table_of, word
from service.trace.summary import ANNOTATION_CATEGORIES

_SIDE = word("side", "host, or gpu: where the region's work runs")
_SELF = ns("self", "of these, without nested regions")
ANNOTATIONS = (
    RANK,
    _SIDE,
    word("name", "of the region; `others` beyond `top`"),
    count("count", "how many there are"),
    ns("sum", "of their durations"),
    number("mean_ns", "of their durations", "ns"),
    ns("min", "the shortest"),
    ns("max", "the longest"),
    number("stddev_ns", "of a sample; 0 of a single one", "ns"),
    _SELF,
)
NESTED = (
    RANK,
    _SIDE,
    word("path", "names of the regions from the outermost to this one, with ` > ` between them"),
    count("depth", "0 for an outermost one"),
    word("name", "of the region"),
    count("count", "how many there are"),
    ns("sum", "of their durations"),
    _SELF,
    pct("of_parent", "of the sum of the region around them; empty for an outermost one"),
)

_HOST = ", ".join(f"'{category}'" for category in sorted(ANNOTATION_CATEGORIES))
_IS_ANNOTATION = f"ph = 'X' AND ts_ns NOTNULL AND cat IN ('gpu_user_annotation', {_HOST})"
_NAMES = f"""
WITH placed AS (
    SELECT side, name, least(row_number() OVER (PARTITION BY side ORDER BY sum(dur_ns) DESC, name), $top + 1) AS slot
    FROM regions GROUP BY side, name
)
SELECT
    side, CASE WHEN slot > $top THEN 'others' ELSE any_value(name) END AS name, count(*) AS count,
    least(sum(dur_ns), 9223372036854775807)::BIGINT AS sum_ns, avg(dur_ns) AS mean_ns, min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns, {deviation("dur_ns")} AS stddev_ns,
    least(sum(self_ns), 9223372036854775807)::BIGINT AS self_ns
FROM regions JOIN placed USING (side, name) GROUP BY side, slot ORDER BY side DESC, slot
"""
_PATHS = """
SELECT
    path, any_value(side) AS side, any_value(name) AS name, min(parent_path) AS parent, count(*) AS count,
    least(sum(dur_ns), 9223372036854775807)::BIGINT AS sum_ns,
    least(sum(self_ns), 9223372036854775807)::BIGINT AS self_ns
FROM regions GROUP BY path ORDER BY path
"""


class AnnotationParameters(Parameters):
    """Parameters of `annotations`."""

    last_step: Literal["keep", "drop"] = Field(
        "keep", description="`drop` leaves out regions that do not start before the last of several steps, as HTA does"
    )
    types: Literal["exact", "hta"] = Field("exact", description="`hta`: the last step begins where HTA's rules find it")
    top: int = Field(1000, ge=1, le=10_000, description="maximum number of names of each side, and of paths in all")


def answer(scope: Scope, parameters: AnnotationParameters) -> Tables:
    """Return the regions of a rank."""
    from service.attribution.nesting import child_sums, nesting_order, parents_of, path_codes  # noqa: PLC0415 - loads numba

    slices = scope.slices()
    host = slices.of_categories(ANNOTATION_CATEGORIES.__contains__)
    sides = [[column[host] for column in slices.host], slices.regions]
    starts, ends, names, _, threads, _ = (np.concatenate(columns) for columns in zip(*sides, strict=True))
    gpu = np.repeat(np.arange(2, dtype=np.int32), [len(side[0]) for side in sides])
    rows = np.arange(len(starts))[nesting_order(starts, ends)]
    if parameters.last_step == "drop" and (start := scope.last_step_start(parameters.types)) is not None:
        rows = rows[starts[rows] < start]
    starts, ends, names, threads, gpu = (column[rows] for column in (starts, ends, names, threads, gpu))
    durations = ends - starts
    parents = parents_of(threads * 2 + gpu, starts, ends)
    own = durations - child_sums(parents, durations)
    numbers, _ = path_codes(parents, names * 2 + gpu)
    words = pa.array([*slices.names, ""])
    regions = {
        "side": pa.array(["host", "gpu"]).take(gpu),
        "name": words.take(names),
        "dur_ns": durations,
        "self_ns": own,
        "path": numbers,
        "parent_path": np.where(parents < 0, -1, numbers[parents]),
    }
    scope.db.register("regions", pa.table(regions))
    by_name, by_path = scope.table(_NAMES, top=parameters.top), scope.table(_PATHS)
    scope.db.unregister("regions")
    return {
        "annotations": _ranked(ANNOTATIONS, scope, by_name),
        "nested": _nested(scope, by_path.to_pylist(), parameters.top),
    }


def _nested(scope: Scope, paths: list[dict[str, Any]], top: int) -> pa.Table:
    """Return the paths with the largest sums, each after its parent; a path's number is larger than its parent's."""
    by_number = {row["path"]: row for row in paths}
    for row in paths:
        parent = by_number.get(row["parent"])
        row["depth"] = parent["depth"] + 1 if parent else 0
        row["of_parent_pct"] = 100 * row["sum_ns"] / parent["sum_ns"] if parent and parent["sum_ns"] else None
    kept = {row["path"] for row in sorted(paths, key=lambda row: (-row["sum_ns"], row["path"]))[:top]}
    for row in paths:
        row["text"] = row["name"]
        if row["path"] in kept and row["parent"] in by_number:
            row["text"] = f"{by_number[row['parent']]['text']} > {row['name']}"
    rows = [row | {"rank": scope.rank, "path": row["text"]} for row in paths if row["path"] in kept]
    rows.sort(key=lambda row: row["side"] != "host")
    return table_of(NESTED, {column.name: [row[column.name] for row in rows] for column in NESTED})


def _ranked(columns: Columns, scope: Scope, table: pa.Table) -> pa.Table:
    return table_of(columns, table.append_column("rank", pa.array([scope.rank] * len(table), pa.int64())))


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no such regions."""
    has_regions = scope.has_event(_IS_ANNOTATION)
    return None if has_regions else "No regions that the program names (record_function) are in this trace."


QUESTION = Question(
    name="annotations",
    short_question="How much time is spent in the regions that the program names?",
    definition="Of each rank, on the host and on the GPU: the regions of record_function and ProfilerStep by name, and"
    " by those that they are nested in on their thread or stream. A region's own time is without those nested in it.",
    source="https://hta.readthedocs.io/en/latest/source/features/user_annotations.html",
    tables={"annotations": ANNOTATIONS, "nested": NESTED},
    parameters=AnnotationParameters,
    inapplicable_reason=missing,
    answer=answer,
)

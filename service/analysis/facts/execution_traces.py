"""Shapes of operators' inputs that a trace lacks, from an execution trace of the same capture."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.host import IS_ANNOTATION, IS_OP, SHAPES
from service.analysis.facts.launch_metadata import int_arg
from service.analysis.facts.scope import Scope
from service.analysis.table import RANK, count, table_of_rows, word
from service.formats.execution_trace import ExecutionTrace, ExecutionTraceFile, read_execution_trace
from service.store.folder import EVENTS
from service.trace.errors import BadExecutionTrace

EQUAL_NAMES_MIN_PCT = 95
"""Percentage of the joined operators whose names must be equal; ids of another capture agree by chance alone."""

EXECUTION_TRACES = (
    RANK,
    word("execution_trace", "name of the file"),
    word("used", "yes if the shapes come from it"),
    count("nodes", "of the execution trace; empty if it can't be read"),
    count("joined", "operators whose id is that of a node"),
    count("same_name", "of these, those whose name is that of the node"),
    count("gained", "of these, those that have shapes only through the execution trace"),
    word("reason", "why it is not used"),
)

_ID = f"coalesce(nullif({int_arg('Record function id')}, 0), external_id)"
"""SQL for the id of an operator that is the ``rf_id`` of its node; without an observer, the first one is 0."""
_JOINED = f"""
SELECT position, has_shapes, node.name::VARCHAR = operator.name AS same_name, node.shapes::VARCHAR AS shapes
FROM (
    SELECT position, name, coalesce({SHAPES}, '') <> '' AS has_shapes, {_ID} AS id
    FROM read_parquet($events) WHERE ph = 'X' AND ts_ns NOTNULL AND ({IS_OP} OR {IS_ANNOTATION})
) AS operator JOIN execution_nodes AS node ON node.rf_id = operator.id
"""


@dataclass(frozen=True)
class Match:
    """The comparison of an execution trace with a trace.

    Attributes:
        execution_trace: name of the file.
        used: whether both are of the same capture, so that the trace gains its shapes.
        nodes: number of its nodes; None if it can't be read.
        joined: number of operators whose id is that of a node.
        same_name: number of these whose name is that of the node.
        gained: number of these that have shapes only through the execution trace.
        reason: why it is not used; None if it is used.
    """

    execution_trace: str
    used: bool = False
    nodes: int | None = None
    joined: int | None = None
    same_name: int | None = None
    gained: int | None = None
    reason: str | None = None

    def note(self, rank: int | None) -> str:
        """Return a sentence about the shapes of a rank."""
        of_rank = "" if rank is None else f"Rank {rank}: "
        if self.used:
            return (
                f"{of_rank}{self.gained:,} of {self.joined:,} operators have their shapes from the execution trace"
                f" {self.execution_trace}, not from the trace; {self.same_name:,} of {self.joined:,} names agree."
            )
        the = "The" if rank is None else "the"
        return f"{of_rank}{the} execution trace {self.execution_trace} is not used. {self.reason}"


@dataclass(frozen=True)
class GainedShapes:
    """Shapes from an execution trace.

    Attributes:
        matches: the execution traces that were compared; only the last one can be used.
        shapes: `position` and `shapes` of each operator that has shapes only through the execution trace.
    """

    matches: list[Match]
    shapes: pa.Table

    def rows(self, rank: int | None) -> pa.Table:
        """Return the matches as a table of `EXECUTION_TRACES`."""
        return table_of_rows(
            EXECUTION_TRACES,
            [
                (rank, match.execution_trace, "yes" if match.used else "no", *astuple(match)[2:])
                for match in self.matches
            ],
        )


def _no_shapes() -> pa.Table:
    """Return an empty table; not a constant, because making one loads pandas, which the server does without."""
    return pa.schema({"position": pa.int64(), "shapes": pa.string()}).empty_table()


def gained_shapes_of(scope: Scope) -> GainedShapes:
    """Return the shapes from the first execution trace beside a rank that is of the same capture.

    Whether it is decides the whole trace, even for a selection of it.
    """
    return scope.cached("gained shapes", lambda: _gained_shapes(scope))


def shapes_sql(scope: Scope) -> str:
    """Return SQL for the shapes of an operator's inputs: those of the trace or, where it lacks them, gained ones."""
    if not scope.execution_traces:
        return SHAPES
    scope.db.register("gained_shapes", gained_shapes_of(scope).shapes)
    gained = "(SELECT shapes FROM gained_shapes WHERE gained_shapes.position = events.position)"
    return f"coalesce(nullif({SHAPES}, ''), {gained}, '')"


def notes_of(table: pa.Table) -> Iterator[str]:
    """Yield a note for each row of a table of `EXECUTION_TRACES`."""
    for row in table.to_pylist():
        rank, used = row.pop("rank"), row.pop("used") == "yes"
        row.pop("cycle", None)
        yield Match(**row, used=used).note(rank)


def _gained_shapes(scope: Scope) -> GainedShapes:
    matches: list[Match] = []
    for file in scope.execution_traces:
        match, shapes = _compare(scope, file)
        matches.append(match)
        if match.used:
            return GainedShapes(matches, shapes)
    return GainedShapes(matches, _no_shapes())


def _compare(scope: Scope, file: ExecutionTraceFile) -> tuple[Match, pa.Table]:
    """Compare an execution trace with a trace, and return the shapes that the trace gains if both belong together."""
    try:
        read = read_execution_trace(file.path)
    except FileNotFoundError:
        return Match(file.name, reason="It was deleted meanwhile."), _no_shapes()
    except BadExecutionTrace as error:
        return Match(file.name, reason=error.detail), _no_shapes()
    joined = _join(scope, read)
    same_name = joined.filter(joined["same_name"])
    gained = same_name.filter(pc.and_not(same_name["shapes"].is_valid(), same_name["has_shapes"]))
    reason = _mismatch(len(joined), len(same_name))
    match = Match(
        file.name,
        used=reason is None,
        nodes=read.nodes,
        joined=len(joined),
        same_name=len(same_name),
        gained=len(gained),
        reason=reason,
    )
    return match, gained.select(["position", "shapes"])


def _join(scope: Scope, read: ExecutionTrace) -> pa.Table:
    scope.db.register("execution_nodes", read.functions)
    try:
        return scope.table(_JOINED, events=str(scope.columns / EVENTS))
    finally:
        scope.db.unregister("execution_nodes")


def _mismatch(joined: int, same_name: int) -> str | None:
    """Return the reason why ids do not belong to the same capture; None if they do."""
    if not joined:
        return "None of its ids is that of an operator of the trace."
    if same_name * 100 >= joined * EQUAL_NAMES_MIN_PCT:
        return None
    return (
        f"It is of another capture: {same_name:,} of {joined:,} operators that have the id of a node have its name, too"
        f" ({same_name * 100 / joined:.1f} %), and {EQUAL_NAMES_MIN_PCT} % are required."
    )

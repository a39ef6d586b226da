"""Launch shapes of kernels and the profiler's estimates for them, from the kernels' arguments."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pyarrow as pa

from service.analysis.facts.scope import KERNELS, Scope

_DETAILS = (
    '{"grid": "VARCHAR", "block": "VARCHAR", "registers per thread": "BIGINT", "shared memory": "BIGINT",'
    ' "blocks per SM": "DOUBLE", "est. achieved occupancy %": "DOUBLE"}'
)
_PARSED_DETAILS = f"try(from_json(args, '{_DETAILS}'))"
_TAIL = """split_part(substr(args, nullif(instr(args, '"registers per thread"'), 0)), '"Collective name"', 1)"""
"""SQL for the part of the arguments that is the same in kernels of a configuration; see `service.attribution.work`."""


def _number_sql(key: str) -> str:
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9.eE+-]+)', 1), '') AS DOUBLE)"""


_BLOCKS, _OCCUPANCY = _number_sql("blocks per SM"), _number_sql("est. achieved occupancy %")

_FIRSTS = """
SELECT configuration AS shape, min(row) AS row FROM device_events WHERE kind = 'kernel' GROUP BY configuration
"""
_KERNEL_SHAPES = f"""
CREATE OR REPLACE TABLE kernel_shapes AS
SELECT position, hash(({_PARSED_DETAILS}, {_BLOCKS}, {_OCCUPANCY})) AS shape FROM events WHERE cat IN {KERNELS}
"""
_FIRST_EVENTS = """
(SELECT shape, args FROM events JOIN (SELECT shape, min(position) AS position FROM kernel_shapes GROUP BY shape)
USING (position))
"""


def _shapes_sql(examples: str) -> str:
    """Return the SQL that creates the table ``shapes`` from the arguments of an example of each shape."""
    return f"""
    CREATE OR REPLACE TABLE shapes AS
    SELECT
        shape, contains(tail, '"grid"') AND contains(tail, '"block"') AS in_tail,
        details.grid AS grid, details.block AS block,
        details['registers per thread'] AS registers, details['shared memory'] AS shared_memory_bytes,
        details['blocks per SM'] AS blocks_per_sm, details['est. achieved occupancy %'] AS occupancy,
        estimated_blocks, estimated_occupancy
    FROM (
        SELECT
            shape, {_PARSED_DETAILS} AS details, {_TAIL} AS tail,
            {_BLOCKS} AS estimated_blocks, {_OCCUPANCY} AS estimated_occupancy
        FROM {examples}
    )
    """


@contextmanager
def kernel_shapes(scope: Scope) -> Iterator[None]:
    """Create the table ``shapes`` in a thread while the `with` block does other work.

    The table exists when the block ends. `with_shapes` adds the column ``shape`` to kernels. ``shapes`` has for each
    shape ``grid, block, registers, shared_memory_bytes, blocks_per_sm, occupancy``, which are NULL if the arguments are
    not valid JSON. ``estimated_blocks`` and ``estimated_occupancy`` are read from invalid JSON, too.
    """
    with ThreadPoolExecutor(1, "shapes") as executor:
        future = executor.submit(_in_tails, scope)
        yield
        future.result()


def with_shapes(scope: Scope, work: str) -> str:
    """Return SQL for the rows of ``work`` or ``device_events`` with the shape of each kernel; NULL for other work."""
    if _in_tails(scope):
        return f"(SELECT *, CASE kind WHEN 'kernel' THEN configuration END AS shape FROM {work})"
    return f"({work} LEFT JOIN kernel_shapes USING (position))"


def _in_tails(scope: Scope) -> bool:
    """Create the tables once; return whether the shapes are configurations, rather than those in `_KERNEL_SHAPES`."""
    return scope.cached("kernel shapes", lambda: _create_tables(scope))


def _create_tables(scope: Scope) -> bool:
    """Group kernels by the tail of their arguments or, if a tail lacks the launch shape, by the parsed arguments."""
    with closing(scope.sibling()) as connection:
        if _create_from_tails(connection):
            return True
        connection.db.execute(_KERNEL_SHAPES)
        connection.db.execute(_shapes_sql(_FIRST_EVENTS))
        return False


def _create_from_tails(scope: Scope) -> bool:
    """Create ``shapes`` from the tails of arguments; return False if a tail lacks the launch shape."""
    scope.define_device_events()
    firsts = scope.table(_FIRSTS)
    if firsts["shape"].null_count:
        return False
    args = scope.args_at(firsts["row"].to_pylist())
    scope.db.register("shape_examples", firsts.append_column("args", pa.array(args, pa.string())))
    scope.db.execute(_shapes_sql("shape_examples"))
    scope.db.unregister("shape_examples")
    [row] = scope.table("SELECT bool_and(coalesce(in_tail, false)) AS all_in_tail FROM shapes").to_pylist()
    return bool(row["all_in_tail"])

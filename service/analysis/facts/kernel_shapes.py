"""Launch shapes of kernels and the profiler's estimates for them, from the kernels' arguments."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from service.analysis.facts.scope import KERNELS, Scope

_DETAILS = (
    '{"grid": "VARCHAR", "block": "VARCHAR", "registers per thread": "BIGINT", "shared memory": "BIGINT",'
    ' "blocks per SM": "DOUBLE", "est. achieved occupancy %": "DOUBLE"}'
)
_PARSED_DETAILS = f"try(from_json(args, '{_DETAILS}'))"
_TAIL = """substr(args, nullif(instr(args, '"registers per thread"'), 0))"""
"""SQL for the tail of the arguments, where Kineto writes the launch shape: comparing it is faster than parsing it."""


def _number_sql(key: str) -> str:
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9.eE+-]+)', 1), '') AS DOUBLE)"""


_BLOCKS, _OCCUPANCY = _number_sql("blocks per SM"), _number_sql("est. achieved occupancy %")

_SHAPES = f"""
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
    FROM events JOIN (SELECT shape, min(position) AS position FROM kernel_shapes GROUP BY shape) USING (position)
)
"""


def _kernel_shapes_sql(shape_key: str) -> str:
    """Return the SQL that creates the table ``kernel_shapes``; kernels of equal keys have the same shape."""
    return f"""
    CREATE OR REPLACE TABLE kernel_shapes AS
    SELECT position, hash({shape_key}) AS shape FROM events WHERE cat IN {KERNELS}
    """


@contextmanager
def kernel_shapes(scope: Scope) -> Iterator[None]:
    """Create the tables ``kernel_shapes`` and ``shapes`` in a thread while the `with` block does other work.

    The tables exist when the block ends.

    ``kernel_shapes`` has the ``position`` and ``shape`` of each kernel. ``shapes`` has for each shape ``grid, block,
    registers, shared_memory_bytes, blocks_per_sm, occupancy``, which are NULL if the arguments are not valid JSON.
    ``estimated_blocks`` and ``estimated_occupancy`` are read from invalid JSON, too.
    """
    with ThreadPoolExecutor(1, "shapes") as executor:
        future = executor.submit(scope.cached, "kernel shapes", lambda: _create_tables(scope))
        yield
        future.result()


def _create_tables(scope: Scope) -> None:
    """Group kernels by the tail of their arguments or, if a tail lacks the launch shape, by the parsed arguments."""
    with closing(scope.sibling()) as connection:
        for shape_key in (_TAIL, f"({_PARSED_DETAILS}, {_BLOCKS}, {_OCCUPANCY})"):
            connection.db.execute(_kernel_shapes_sql(shape_key))
            connection.db.execute(_SHAPES)
            [row] = connection.table("SELECT bool_and(coalesce(in_tail, false)) AS all_in_tail FROM shapes").to_pylist()
            if row["all_in_tail"]:
                break

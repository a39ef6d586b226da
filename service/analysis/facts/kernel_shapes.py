"""In which shapes kernels are launched, and what the profiler estimates of each: what their arguments tell of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from service.analysis.facts.scope import KERNELS, Scope

_DETAILS = (
    '{"grid": "VARCHAR", "block": "VARCHAR", "registers per thread": "BIGINT", "shared memory": "BIGINT",'
    ' "blocks per SM": "DOUBLE", "est. achieved occupancy %": "DOUBLE"}'
)
_READ = f"try(from_json(args, '{_DETAILS}'))"
_TAIL = """substr(args, nullif(instr(args, '"registers per thread"'), 0))"""
"""SQL for the end of arguments, where Kineto tells of a launch's shape: it is faster to compare than to read."""


def _number(key: str) -> str:
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9.eE+-]+)', 1), '') AS DOUBLE)"""


_BLOCKS, _OCCUPANCY = _number("blocks per SM"), _number("est. achieved occupancy %")

_KERNEL_SHAPES = f"""
CREATE OR REPLACE TABLE kernel_shapes AS
SELECT position, hash({{}}) AS shape FROM events WHERE cat IN {KERNELS}
"""
_SHAPES = f"""
CREATE OR REPLACE TABLE shapes AS
SELECT
    shape, contains(tail, '"grid"') AND contains(tail, '"block"') AS is_told,
    details.grid AS grid, details.block AS block,
    details['registers per thread'] AS registers, details['shared memory'] AS shared_memory_bytes,
    details['blocks per SM'] AS blocks_per_sm, details['est. achieved occupancy %'] AS occupancy,
    estimated_blocks, estimated_occupancy
FROM (
    SELECT
        shape, {_READ} AS details, {_TAIL} AS tail, {_BLOCKS} AS estimated_blocks, {_OCCUPANCY} AS estimated_occupancy
    FROM events JOIN (SELECT shape, min(position) AS position FROM kernel_shapes GROUP BY shape) USING (position)
)
"""


@contextmanager
def kernel_shapes(scope: Scope) -> Iterator[None]:
    """See to it that there are the tables ``kernel_shapes`` and ``shapes``, while the block reads something else.

    The first has ``position`` and ``shape`` of each kernel; the other, of each shape, ``grid, block, registers,
    shared_memory_bytes, blocks_per_sm, occupancy``, where arguments are sound; and ``estimated_blocks`` and
    ``estimated_occupancy``, which are also found in others.
    """
    with ThreadPoolExecutor(1, "shapes") as thread:
        found = thread.submit(scope.once, "kernel shapes", lambda: _find(scope))
        yield
        found.result()


def _find(scope: Scope) -> None:
    with closing(scope.beside()) as own:
        for shape in (_TAIL, f"({_READ}, {_BLOCKS}, {_OCCUPANCY})"):
            own.db.execute(_KERNEL_SHAPES.format(shape))
            own.db.execute(_SHAPES)
            if own.table("SELECT bool_and(coalesce(is_told, false)) AS told FROM shapes").to_pylist()[0]["told"]:
                break

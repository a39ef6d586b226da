"""Standard deviations in SQL that do not depend on the order of the rows.

DuckDB's own functions add doubles in the order in which its threads come. So their last digits vary from run to run.
"""

_EXACT_MAX = 10**13  # ns, almost three hours: the squares of a few longer times may exceed 128 bits


def squared_deviations(values: str) -> str:
    """Return SQL for the sum of the squared deviations of some integers from their mean.

    The sum is taken of exact integers, unless a value is beyond `_EXACT_MAX`.

    Args:
        values: SQL of the integers.
    """
    is_exact = f"max({values}) < {_EXACT_MAX} AND min({values}) > -{_EXACT_MAX}"
    squares = f"sum(CASE WHEN abs({values}::DOUBLE) < {_EXACT_MAX} THEN {values}::HUGEINT * {values} END)"
    total, count = f"sum({values})", f"count({values})"
    mean = f"({total} // {count})"  # rounded to an integer
    from_rounded = f"({squares} - {mean} * (2 * {total} - {count} * {mean}))::DOUBLE"
    rest = f"({total} - {count} * {mean})::DOUBLE"
    exact = f"greatest({from_rounded} - {rest} * {rest} / {count}, 0)"
    return f"CASE WHEN {is_exact} THEN {exact} ELSE var_pop({values}) * {count} END"


def deviation(values: str) -> str:
    """Return SQL for the standard deviation of a sample of integers; 0 of a single one."""
    return f"CASE WHEN count({values}) > 1 THEN sqrt({squared_deviations(values)} / (count({values}) - 1)) ELSE 0 END"

"""Standard deviations are those of exact arithmetic, and the same in any order of the rows."""

import math
import random
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.deviations import deviation, squared_deviations

TIMES = st.lists(st.integers(-(10**13) + 1, 10**13 - 1) | st.integers(0, 9), min_size=1, max_size=20)


def asked(sql: str, values: list[int]) -> float:
    rows = pa.table({"x": pa.array(values, pa.int64())})
    with duckdb.connect() as db:
        db.register("rows", rows)
        (row,) = db.sql(f"SELECT {sql} FROM rows").fetchall()
    return float(row[0])


@given(TIMES)
def test_squared_deviations_are_exact(values: list[int]) -> None:
    mean = Fraction(sum(values), len(values))
    expected = float(sum((value - mean) ** 2 for value in values))

    assert asked(squared_deviations("x"), values) == pytest.approx(expected, rel=1e-15)


def test_deviation_is_the_same_in_any_order() -> None:
    values = [random.Random(seed).randrange(10**12) for seed in range(2000)]
    found = {asked(deviation("x"), random.Random(seed).sample(values, len(values))) for seed in range(5)}

    assert len(found) == 1


def test_deviation_of_a_single_value_is_zero() -> None:
    assert asked(deviation("x"), [7]) == 0


def test_times_of_centuries_have_a_deviation_too() -> None:
    values = [2**63 - 1, -(2**63), 0] * 3

    assert asked(deviation("x"), values) == pytest.approx(2**63 * math.sqrt(6 / 8), rel=1e-9)

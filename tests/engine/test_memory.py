"""Prediction of the memory that a load takes."""

import pytest

from service.engine.memory import (
    BASE_BYTES,
    LIMIT_MIN_BYTES,
    PER_EVENT,
    PER_ORIGINAL_BYTE,
    MemoryModel,
    memory_limit,
)

MILLION = 1_000_000
GIB = 1 << 30


@pytest.mark.parametrize("args", list(PER_EVENT))
def test_prediction_is_that_of_the_engine_and_its_events(args: str) -> None:
    model = MemoryModel()
    assert model.predict(args, 0) == BASE_BYTES
    assert model.predict(args, MILLION) == BASE_BYTES + PER_EVENT[args] * MILLION


def test_prediction_for_an_original_is_that_of_its_bytes_with_a_wider_margin() -> None:
    expected, largest = MemoryModel().predict_original(100 * MILLION)
    assert expected == BASE_BYTES + PER_ORIGINAL_BYTE * 100 * MILLION
    assert expected < largest < 4 * expected
    assert MemoryModel().predict_original(0) == (BASE_BYTES, BASE_BYTES)


def test_fewer_arguments_take_less_memory() -> None:
    assert PER_EVENT["none"] < PER_EVENT["essential"] < PER_EVENT["all"]


def test_prediction_approaches_measured_loads() -> None:
    model = MemoryModel()
    measured = BASE_BYTES + 2 * PER_EVENT["all"] * MILLION
    for _ in range(10):
        model.learn("all", MILLION, measured)
    assert model.predict("all", MILLION) == pytest.approx(measured, rel=0.05)
    assert model.predict("none", MILLION) == MemoryModel().predict("none", MILLION)  # no such load was measured


def test_single_load_changes_the_prediction_moderately() -> None:
    model = MemoryModel()
    model.learn("all", MILLION, 100 * GIB)
    assert model.predict("all", MILLION) < 3 * MemoryModel().predict("all", MILLION)


def test_small_loads_do_not_change_the_prediction() -> None:
    model = MemoryModel()
    model.learn("all", 1000, GIB)
    model.learn("all", MILLION, 0)  # 0: the memory was not measured
    assert model.predict("all", MILLION) == MemoryModel().predict("all", MILLION)


def test_prediction_grows_after_a_load_was_killed_for_its_size() -> None:
    model = MemoryModel()
    killed_at = memory_limit(model.predict("all", MILLION), 100 * GIB)
    model.learn("all", MILLION, killed_at, killed=True)
    assert model.predict("all", MILLION) == pytest.approx(killed_at, rel=0.01)
    model.learn("all", MILLION, killed_at // 4, killed=True)  # it was killed far below its limit, so not for its size
    assert model.predict("all", MILLION) == pytest.approx(killed_at, rel=0.01)


def test_memory_limit_exceeds_the_prediction_and_not_the_budget() -> None:
    assert memory_limit(1 << 20, 100 * GIB) == LIMIT_MIN_BYTES
    assert memory_limit(4 * GIB, 100 * GIB) == 6 * GIB
    assert memory_limit(4 * GIB, 5 * GIB) == 5 * GIB

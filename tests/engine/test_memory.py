"""How much memory a load is expected to take."""

import pytest

from service.engine.memory import BASE_BYTES, CAP_FLOOR, PER_EVENT, MemoryModel, cap

MILLION = 1_000_000
GIB = 1 << 30


@pytest.mark.parametrize("args", list(PER_EVENT))
def test_a_load_takes_the_engine_and_its_events(args: str) -> None:
    model = MemoryModel()
    assert model.predicted(args, 0) == BASE_BYTES
    assert model.predicted(args, MILLION) == BASE_BYTES + PER_EVENT[args] * MILLION


def test_fewer_arguments_take_less() -> None:
    assert PER_EVENT["none"] < PER_EVENT["essential"] < PER_EVENT["all"]


def test_the_model_comes_close_to_what_loads_take_here() -> None:
    model = MemoryModel()
    taken = BASE_BYTES + 2 * PER_EVENT["all"] * MILLION
    for _ in range(10):
        model.learn("all", MILLION, taken)
    assert model.predicted("all", MILLION) == pytest.approx(taken, rel=0.05)
    assert model.predicted("none", MILLION) == MemoryModel().predicted("none", MILLION)  # of which none was seen


def test_one_load_does_not_turn_it_over() -> None:
    model = MemoryModel()
    model.learn("all", MILLION, 100 * GIB)
    assert model.predicted("all", MILLION) < 3 * MemoryModel().predicted("all", MILLION)


def test_small_loads_teach_nothing() -> None:
    model = MemoryModel()
    model.learn("all", 1000, GIB)
    model.learn("all", MILLION, 0)  # the system did not tell
    assert model.predicted("all", MILLION) == MemoryModel().predicted("all", MILLION)


def test_a_load_that_was_killed_for_its_size_may_be_larger_the_next_time() -> None:
    model = MemoryModel()
    killed_at = cap(model.predicted("all", MILLION), 100 * GIB)
    model.learn("all", MILLION, killed_at, killed=True)
    assert model.predicted("all", MILLION) == pytest.approx(killed_at, rel=0.01)
    model.learn("all", MILLION, killed_at // 4, killed=True)  # another cause than its size
    assert model.predicted("all", MILLION) == pytest.approx(killed_at, rel=0.01)


def test_an_engine_may_grow_beyond_what_was_expected_and_not_beyond_the_budget() -> None:
    assert cap(1 << 20, 100 * GIB) == CAP_FLOOR
    assert cap(4 * GIB, 100 * GIB) == 6 * GIB
    assert cap(4 * GIB, 5 * GIB) == 5 * GIB

"""What kills its engine again and again is left alone for a while."""

from types import SimpleNamespace

import pytest

from service.engine import deaths as deaths_module
from service.engine.deaths import WITHIN_S, Deaths
from service.trace.errors import EngineFailed, EngineOutgrew


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    now = [1000.0]
    monkeypatch.setattr(deaths_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_died_too_often_is_refused_with_the_last_reason(clock: list[float]) -> None:
    deaths = Deaths(2)
    deaths.note("a", EngineFailed("It fell over."))
    deaths.check("a")
    clock[0] += 100
    deaths.note("a", EngineOutgrew("It grew.", memory_bytes=7))
    with pytest.raises(EngineFailed, match=r"ended 2 times within 10 minutes.*500 s.*It grew") as refused:
        deaths.check("a")
    assert refused.value.extra["retry_after_s"] == WITHIN_S - 100
    assert refused.value.extra["last"]["code"] == "engine_outgrew"
    deaths.check("b")


def test_time_heals(clock: list[float]) -> None:
    deaths = Deaths(2)
    deaths.note("a", EngineFailed("It fell over."))
    clock[0] += WITHIN_S - 1
    deaths.note("a", EngineFailed("It fell over."))
    assert deaths.count("a") == 2
    clock[0] += 2
    deaths.check("a")
    assert deaths.count("a") == 1
    clock[0] += WITHIN_S
    assert deaths.count("a") == 0


def test_a_death_can_be_forgotten() -> None:
    deaths = Deaths(1)
    deaths.note("a", EngineFailed("It fell over."))
    deaths.forget("a")
    deaths.check("a")

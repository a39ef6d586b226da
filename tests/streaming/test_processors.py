"""A process that shares its machine can be limited to some of the processors."""

import pytest

from service.streaming import processors
from service.streaming.processors import THREADS_MAX, limit_processors, processor_count


def test_limit_bounds_the_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_limit", THREADS_MAX)
    usable = processor_count()
    limit_processors(1)
    assert processor_count() == 1
    limit_processors(0)
    assert processor_count() == 1, "a process has at least one"
    limit_processors(1000)
    assert processor_count() == usable

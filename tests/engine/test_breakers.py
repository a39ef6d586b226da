"""Causes of repeated crashes are refused for a while."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.engine import breakers as breakers_module
from service.engine.breakers import CLIENT_FACTOR, WINDOW_S, CircuitBreaker, RequestBreakers, load_refused, pattern
from service.engine.engine import Request
from service.engine.scheduler import AnyExchange, Exchange
from service.engine.session import Query
from service.engine.trace_processor import wire
from service.engine.trace_processor.rpc import PerfettoRequest
from service.trace.errors import ClientBlocked, EngineFailed, EngineOutOfMemory, StatementBlocked, TracedockError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clock of the breakers, which a test can set."""
    now = [1000.0]
    monkeypatch.setattr(breakers_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_load_that_crashed_too_often_is_refused_with_the_last_error(clock: list[float]) -> None:
    breaker = CircuitBreaker(2)
    breaker.record("a", EngineFailed("It fell over."))
    breaker.check("a", load_refused)
    clock[0] += 100
    breaker.record("a", EngineOutOfMemory("It grew.", memory_bytes=7))
    with pytest.raises(EngineFailed, match=r"ended 2 times within 10 minutes.*500 s.*It grew") as refused:
        breaker.check("a", load_refused)
    assert refused.value.extra["retry_after_s"] == WINDOW_S - 100
    assert refused.value.extra["last"]["code"] == "engine_outgrew"
    breaker.check("b", load_refused)


def test_old_crashes_do_not_count(clock: list[float]) -> None:
    breaker = CircuitBreaker(2)
    breaker.record("a", EngineFailed("It fell over."))
    clock[0] += WINDOW_S - 1
    breaker.record("a", EngineFailed("It fell over."))
    assert breaker.count("a") == 2
    clock[0] += 2
    breaker.check("a", load_refused)
    assert breaker.count("a") == 1
    clock[0] += WINDOW_S
    assert breaker.count("a") == 0


def test_crashes_of_a_cause_can_be_reset() -> None:
    breaker = CircuitBreaker(1)
    breaker.record("a", EngineFailed("It fell over."))
    breaker.reset("a")
    breaker.check("a", load_refused)


# -- statements and clients ----------------------------------------------------------------------------------------


def exchange(request: Request[Any], owner: str) -> AnyExchange:
    return Exchange(request, lambda _: None, lambda _: None, owner=owner)


def refusal(breakers: RequestBreakers, sql: str, owner: str) -> type[TracedockError] | None:
    """Return the class of the error that refuses a client's statement, or None if it is allowed."""
    try:
        breakers.admit(exchange(Query(sql), owner))
    except TracedockError as error:
        return type(error)
    return None


DIED = EngineFailed("It fell over.")


def test_text_of_a_statement_is_refused_for_all_clients_after_one_crash() -> None:
    breakers = RequestBreakers(3)
    breakers.record("select randomblob(3)", "a", DIED)
    with pytest.raises(StatementBlocked, match="An engine died of this statement") as refused:
        breakers.admit(exchange(Query("select randomblob(3)"), "b"))
    assert 0 < refused.value.extra["retry_after_s"] <= WINDOW_S
    assert refusal(breakers, "select randomblob(4)", "a") is None
    assert refusal(breakers, "select 1", "a") is None


def test_statements_that_differ_only_in_literals_are_refused_together() -> None:
    breakers = RequestBreakers(3)
    for number in range(3):
        breakers.record(f"select /* {number} */ randomblob({number})", f"client {number}", DIED)
    assert refusal(breakers, "SELECT  randomblob( 0x77 ) -- again", "b") is StatementBlocked
    assert refusal(breakers, "select zeroblob(3)", "client 0") is None


def test_client_that_crashes_engines_with_many_statements_is_refused_alone(clock: list[float]) -> None:
    breakers = RequestBreakers(3)
    for number in range(3 * CLIENT_FACTOR):
        assert refusal(breakers, "select 1", "a") is None
        breakers.record(f"select killer_{'x' * number}()", "a", DIED)
    assert refusal(breakers, "select 1", "a") is ClientBlocked
    with pytest.raises(ClientBlocked):
        breakers.check_client("a")
    assert refusal(breakers, "select 1", "b") is None
    clock[0] += WINDOW_S + 1
    assert refusal(breakers, "select 1", "a") is None


def test_metric_that_crashes_an_engine_is_refused_like_a_statement() -> None:
    breakers = RequestBreakers(3)
    metric, other_metric = wire.request(wire.COMPUTE_METRIC), wire.request(wire.COMPUTE_METRIC)
    metric.compute_metric_args.metric_names.append("a")
    other_metric.compute_metric_args.metric_names.append("b")
    breakers.record(PerfettoRequest(metric).statement, "a", DIED)
    breakers.admit(exchange(PerfettoRequest(other_metric), "a"))
    with pytest.raises(StatementBlocked):
        breakers.admit(exchange(PerfettoRequest(metric), "b"))


@pytest.mark.parametrize(
    ("text", "other_text"),
    [
        ("SELECT 1", "select  2.5e9"),
        ("select 'a''b', x", "select '', x"),
        ("select x'00' /* a */ from t", "select x'ff' from t -- b"),
        ('select "a"', 'select\n"b"'),
    ],
)
def test_pattern_ignores_literals_comments_and_spaces(text: str, other_text: str) -> None:
    assert pattern(text) == pattern(other_text)


@pytest.mark.parametrize(("text", "other_text"), [("select a12", "select a13"), ("select hex(1)", "select abs(1)")])
def test_pattern_keeps_names(text: str, other_text: str) -> None:
    assert pattern(text) != pattern(other_text)


def test_pattern_of_long_text_is_short() -> None:
    for text in ("'" * 4_000_000, "/*" * 2_000_000, "1" * 4_000_000, '"' + "a" * 4_000_000):
        assert len(pattern(text)) <= 1 << 16


def test_old_crashes_take_no_memory(clock: list[float]) -> None:
    breaker = CircuitBreaker(2)
    for number in range(100):
        clock[0] += WINDOW_S / 10
        breaker.record(number, DIED)
    assert len(breaker._times) <= 12

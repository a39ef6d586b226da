"""What kills its engine again and again is left alone for a while."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.engine import deaths as deaths_module
from service.engine import wire
from service.engine.deaths import CLIENT_FACTOR, WITHIN_S, Blame, Deaths, load_refused, pattern
from service.trace.errors import ClientBlocked, EngineFailed, EngineOutOfMemory, StatementBlocked, TracedockError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    now = [1000.0]
    monkeypatch.setattr(deaths_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_died_too_often_is_refused_with_the_last_reason(clock: list[float]) -> None:
    deaths = Deaths(2)
    deaths.note("a", EngineFailed("It fell over."))
    deaths.check("a", load_refused)
    clock[0] += 100
    deaths.note("a", EngineOutOfMemory("It grew.", memory_bytes=7))
    with pytest.raises(EngineFailed, match=r"ended 2 times within 10 minutes.*500 s.*It grew") as refused:
        deaths.check("a", load_refused)
    assert refused.value.extra["retry_after_s"] == WITHIN_S - 100
    assert refused.value.extra["last"]["code"] == "engine_outgrew"
    deaths.check("b", load_refused)


def test_time_heals(clock: list[float]) -> None:
    deaths = Deaths(2)
    deaths.note("a", EngineFailed("It fell over."))
    clock[0] += WITHIN_S - 1
    deaths.note("a", EngineFailed("It fell over."))
    assert deaths.count("a") == 2
    clock[0] += 2
    deaths.check("a", load_refused)
    assert deaths.count("a") == 1
    clock[0] += WITHIN_S
    assert deaths.count("a") == 0


def test_a_death_can_be_forgotten() -> None:
    deaths = Deaths(1)
    deaths.note("a", EngineFailed("It fell over."))
    deaths.forget("a")
    deaths.check("a", load_refused)


# -- statements and clients ----------------------------------------------------------------------------------------


def question(sql: str) -> Any:
    return wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))


def refusal(blame: Blame, sql: str, client: str) -> type[TracedockError] | None:
    try:
        blame.check(question(sql), client)
    except TracedockError as error:
        return type(error)
    return None


DIED = EngineFailed("It fell over.")


def test_the_text_of_a_statement_is_refused_for_everybody_after_one_death() -> None:
    blame = Blame(3)
    blame.note(question("select randomblob(3)"), "a", DIED)
    with pytest.raises(StatementBlocked, match="An engine died of this statement") as refused:
        blame.check(question("select randomblob(3)"), "b")
    assert 0 < refused.value.extra["retry_after_s"] <= WITHIN_S
    assert refusal(blame, "select randomblob(4)", "a") is None
    assert refusal(blame, "select 1", "a") is None


def test_statements_that_differ_in_literals_only_are_refused_together() -> None:
    blame = Blame(3)
    for number in range(3):
        blame.note(question(f"select /* {number} */ randomblob({number})"), f"client {number}", DIED)
    assert refusal(blame, "SELECT  randomblob( 0x77 ) -- again", "b") is StatementBlocked
    assert refusal(blame, "select zeroblob(3)", "client 0") is None


def test_a_client_that_goes_on_with_other_statements_has_to_pause_and_others_have_not(clock: list[float]) -> None:
    blame = Blame(3)
    for number in range(3 * CLIENT_FACTOR):
        assert refusal(blame, "select 1", "a") is None
        blame.note(question(f"select killer_{'x' * number}()"), "a", DIED)
    assert refusal(blame, "select 1", "a") is ClientBlocked
    with pytest.raises(ClientBlocked):
        blame.check_client("a")
    assert refusal(blame, "select 1", "b") is None
    clock[0] += WITHIN_S + 1
    assert refusal(blame, "select 1", "a") is None


def test_a_metric_that_kills_is_refused_like_a_statement() -> None:
    blame = Blame(3)
    metric, other = wire.request(wire.COMPUTE_METRIC), wire.request(wire.COMPUTE_METRIC)
    metric.compute_metric_args.metric_names.append("a")
    other.compute_metric_args.metric_names.append("b")
    blame.note(metric, "a", DIED)
    blame.check(other, "a")
    with pytest.raises(StatementBlocked):
        blame.check(metric, "b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 1", "select  2.5e9"),
        ("select 'a''b', x", "select '', x"),
        ("select x'00' /* a */ from t", "select x'ff' from t -- b"),
        ('select "a"', 'select\n"b"'),
    ],
)
def test_a_pattern_is_what_literals_comments_and_spaces_leave(one: str, other: str) -> None:
    assert pattern(one) == pattern(other)


@pytest.mark.parametrize(("one", "other"), [("select a12", "select a13"), ("select hex(1)", "select abs(1)")])
def test_a_pattern_keeps_names(one: str, other: str) -> None:
    assert pattern(one) != pattern(other)


def test_the_pattern_of_much_text_takes_no_time_to_speak_of() -> None:
    for text in ("'" * 4_000_000, "/*" * 2_000_000, "1" * 4_000_000, '"' + "a" * 4_000_000):
        assert len(pattern(text)) <= 1 << 16


def test_deaths_long_past_take_no_memory(clock: list[float]) -> None:
    deaths = Deaths(2)
    for number in range(100):
        clock[0] += WITHIN_S / 10
        deaths.note(number, DIED)
    assert len(deaths._at) <= 12

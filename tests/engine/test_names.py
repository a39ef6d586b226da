"""Clients can change only the names that they have claimed."""

import pytest

from service.engine import names as names_module
from service.engine.names import Change, Names
from service.engine.tokens import tokens


@pytest.mark.parametrize("name", ["slice", "sqlite_stat1", "__intrinsic_x", "_torch_facts", "_client1_x"])
@pytest.mark.parametrize("change", [Change.CREATE, Change.ALTER])
def test_built_in_names_can_not_be_claimed(name: str, change: Change) -> None:
    assert "built in" in str(Names(["slice"]).claim(name, change, "a"))


def test_second_client_gets_an_alias_for_a_claimed_name() -> None:
    names = Names()
    sql = "SELECT mine.x, y.mine, \"MINE\", 'mine', $mine FROM main.mine"
    assert names.claim("mine", Change.CREATE, "a") is None
    assert "another client" in str(names.claim("mine", Change.ALTER, "b"))
    assert names.claim("mine", Change.CREATE, "b") is None
    assert names.claim("mine", Change.ALTER, "b") is None
    aliased = "SELECT _client1_mine.x, y.mine, \"_client1_mine\", 'mine', $mine FROM main._client1_mine"
    assert names.substitute(sql, tokens(sql), "b") == aliased
    assert names.substitute(sql, tokens(sql), "a") == sql


def test_tables_and_views_of_a_client_that_left_are_dropped() -> None:
    names = Names()
    for name, kind in {"t": "TABLE", "v": "VIEW", "f": "FUNCTION", "none": ""}.items():
        names.claim(name, Change.CREATE, "a", kind)
    assert names.left_by("a") == {"v": 'DROP VIEW IF EXISTS "v"', "t": 'DROP TABLE IF EXISTS "t"'}
    assert names.claim("none", Change.ALTER, "b") is None
    assert "another client" in str(names.claim("t", Change.ALTER, "b"))  # until the table of client a is dropped
    names.release("t")
    assert names.claim("t", Change.ALTER, "b") is None
    assert "another client" in str(names.claim("f", Change.ALTER, "b"))


def test_number_of_names_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "NAMES_MAX", 2)
    names = Names()
    assert [names.claim(name, Change.CREATE, "a") for name in ("x", "y", "x")] == [None] * 3
    assert "limit" in str(names.claim("z", Change.CREATE, "a"))

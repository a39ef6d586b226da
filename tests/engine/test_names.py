"""Each client changes names of its own alone."""

from pathlib import Path

import pytest

from service.engine import names as names_module
from service.engine.names import Change, Names, built_in_names
from service.engine.tokens import tokens


def test_the_names_of_the_standard_library_are_read_off_the_engine(engine: Path) -> None:
    assert {"slice", "thread_slice", "android_startups", "_ii_df_agg", "torch_kernel"} <= built_in_names(engine)


@pytest.mark.parametrize("name", ["slice", "sqlite_stat1", "__intrinsic_x", "_torch_facts", "_client1_x"])
@pytest.mark.parametrize("change", [Change.CREATE, Change.ALTER])
def test_what_is_built_in_is_no_clients(name: str, change: Change) -> None:
    assert "built in" in str(Names(["slice"]).claim(name, change, "a"))


def test_a_second_client_gets_a_name_of_its_own() -> None:
    names = Names()
    sql = "SELECT mine.x, y.mine, \"MINE\", 'mine', $mine FROM main.mine"
    assert names.claim("mine", Change.CREATE, "a") is None
    assert "another client" in str(names.claim("mine", Change.ALTER, "b"))
    assert names.claim("mine", Change.CREATE, "b") is None
    assert names.claim("mine", Change.ALTER, "b") is None
    own = "SELECT _client1_mine.x, y.mine, \"_client1_mine\", 'mine', $mine FROM main._client1_mine"
    assert names.written(sql, tokens(sql), "b") == own
    assert names.written(sql, tokens(sql), "a") == sql


def test_what_a_client_leaves_is_dropped_but_for_functions() -> None:
    names = Names()
    for name, kind in {"t": "TABLE", "v": "VIEW", "f": "FUNCTION", "none": ""}.items():
        names.claim(name, Change.CREATE, "a", kind)
    assert names.left_by("a") == {"v": 'DROP VIEW IF EXISTS "v"', "t": 'DROP TABLE IF EXISTS "t"'}
    assert names.claim("none", Change.ALTER, "b") is None
    assert "another client" in str(names.claim("t", Change.ALTER, "b"))  # until it is dropped
    names.release("t")
    assert names.claim("t", Change.ALTER, "b") is None
    assert "another client" in str(names.claim("f", Change.ALTER, "b"))


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "NAMES_MAX", 2)
    names = Names()
    assert [names.claim(name, Change.CREATE, "a") for name in ("x", "y", "x")] == [None] * 3
    assert "limit" in str(names.claim("z", Change.CREATE, "a"))

"""SQL is split into the same tokens as by the engine."""

import sys

import pytest

from service.engine.tokens import Kind, tokens
from service.trace.errors import SqlError, SqlRefused


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a--b\n/*c*/d/*e", ["a", "d"]),
        ("'it''s'\"a\"\"b\"`c`[d'e]", ["'it''s'", '"a""b"', "`c`", "[d'e]"]),
        ("$a @b :c ?1 1e5x x'00' a$b é", ["$a", "@b", ":c", "?", "1", "1e5x", "x", "'00'", "a$b", "é"]),
        ("m!(x)<>1;/*/ ;*/2", ["m", "!", "(", "x", ")", "<", ">", "1", ";", "2"]),
    ],
)
def test_sql_is_split_into_tokens(sql: str, expected: list[str]) -> None:
    assert [token.text for token in tokens(sql)] == expected
    assert all(sql[token.start :].startswith(token.text) for token in tokens(sql))


@pytest.mark.parametrize(
    ("text", "name"),
    [("Slice", "slice"), ('"SLI""ce"', 'sli"ce'), ("`A``b`", "a`b"), ("[A]", "a"), ("ÉA", "Éa"), ("'a'", None)],
)
def test_names_are_compared_as_sqlite_compares_them(text: str, name: str | None) -> None:
    assert tokens(text)[0].name == name


@pytest.mark.parametrize("sql", ["'a", '"a', "`a", "[a", "'a''", "$a(1)", "$a::b", "$", ":"])
def test_unterminated_token_is_an_error(sql: str) -> None:
    with pytest.raises(SqlError):
        tokens(sql)


def test_characters_that_are_no_letters_are_allowed_only_in_quotes() -> None:
    strange = [c for c in map(chr, range(0x80, sys.maxunicode + 1)) if not c.isalnum() and not c.isprintable()]
    assert {"\xa0", "\u2003", "\u200b", "\ufeff", "\x85"} <= set(strange)
    for character in strange[:3000]:
        for sql in (character, f"a{character}b", f"1{character}"):
            with pytest.raises(SqlRefused):
                tokens(sql)
    [token] = tokens(f"'{''.join(strange)}'")
    assert token.kind == Kind.STRING

"""The tokens of PerfettoSQL, split as the engine splits them (SQLite's tokenize.c, and PerfettoSQL's additions).

Text that the engine might split differently is refused. The engine treats a no-break space and a byte order mark as
blanks, and all other non-ASCII characters as letters. It reads ``$a(…)`` as one variable, whose parentheses may contain
any text.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from service.trace.errors import SqlError, SqlRefused

TOKENS_MAX = 300_000  # tokens in one text; splitting that many takes a third of a second
_START, _MORE = r"[A-Za-z_\x80-\U0010FFFF]", r"[A-Za-z0-9_$\x80-\U0010FFFF]"
_TOKEN = rf"""
    (?: [ \t\n\f\r]++ | --[^\n]*+ | /\*.*?(?:\*/|\Z) )*+
    (?:
      (?P<string> '(?: [^']++ | '' )*+' )
      | (?P<quoted> "(?: [^"]++ | "" )*+" | `(?: [^`]++ | `` )*+` | \[ [^\]]*+ \] )
      | (?P<word> {_START} {_MORE}*+ )
      | (?P<number> [0-9] {_MORE}*+ )
      | (?P<variable> [$@:] {_MORE}++ (?! \( | :: ) )
      | (?P<mark> [-(),;.+*/%&|~<>=!?] )
      | (?P<end> \Z )
      | (?P<strange> . )
    )
    """

_WORD_MAX = 64  # characters of a word that an error quotes


class Kind(StrEnum):
    """The kind of a token."""

    STRING = "string"
    QUOTED = "quoted"
    WORD = "word"
    NUMBER = "number"
    VARIABLE = "variable"
    MARK = "mark"


class Token(NamedTuple):
    """A token: its kind, its text in the SQL, and the index of its first character."""

    kind: str
    text: str
    start: int

    @property
    def name(self) -> str | None:
        """The identifier as SQLite compares it, without quotes and in lower case; None for other tokens."""
        if self.kind == Kind.WORD:
            return folded(self.text)
        if self.kind != Kind.QUOTED:
            return None
        quote = self.text[-1]
        return folded(self.text[1:-1].replace(quote * 2, quote) if quote != "]" else self.text[1:-1])


_UPPER_TO_LOWER = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def folded(name: str) -> str:
    """Return a name with its ASCII letters in lower case; SQLite distinguishes É from é."""
    return name.lower() if name.isascii() else name.translate(_UPPER_TO_LOWER)


def tokens(sql: str) -> list[Token]:
    """Return the tokens of an SQL text, without blanks and comments; raises `SqlRefused` or `SqlError`."""
    if (start := sql.find("\0")) >= 0:
        raise refusal(sql, start, "the character U+0000", "the engine reads no further: remove it")
    sql_tokens = list(islice(_split(sql), TOKENS_MAX + 1))
    if len(sql_tokens) > TOKENS_MAX:
        last = sql_tokens[-1]
        raise refusal(sql, last.start, last.text, f"SQL of more than {TOKENS_MAX:,} words is too long: split it")
    for token in () if sql.isascii() else sql_tokens:
        if token.kind in (Kind.WORD, Kind.NUMBER, Kind.VARIABLE) and not token.text.isascii():
            _check_letters(sql, token)
    return sql_tokens


def _split(sql: str) -> Iterator[Token]:
    for match in _pattern().finditer(sql):
        kind: Any = match.lastgroup
        if kind == "end":
            return
        if kind == "strange":
            raise _unreadable(sql, match.start(kind))
        yield Token(kind, match[kind], match.start(kind))


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(_TOKEN, re.VERBOSE | re.DOTALL)  # at its first use, because it takes 20 ms


def _check_letters(sql: str, token: Token) -> None:
    for offset, character in enumerate(token.text):
        if not (character.isascii() or character.isalnum()):
            raise _unreadable(sql, token.start + offset)


def _unreadable(sql: str, start: int) -> SqlRefused | SqlError:
    character = sql[start]
    if character in "'\"`[":
        return malformed(sql, start, character, "this quote is never closed")
    if character in "$@:":
        return malformed(sql, start, character, "it must be followed by a name, and that not by `(` or `::`")
    word = character if "!" <= character <= "~" else f"the character U+{ord(character):04X}"
    return refusal(
        sql,
        start,
        word,
        "outside of strings, comments and quoted names it has no meaning, or an ambiguous one; remove it",
    )


def refusal(sql: str, start: int, word: str, reason: str) -> SqlRefused:
    """Return the error that refuses the word at the index `start` of the SQL, with the reason."""
    word, place = _place(sql, start, word)
    where = f"{word} in line {place['line']}, column {place['column']}"
    return SqlRefused(f"{where} is refused: {reason}.", word=word, **place)


def malformed(sql: str, start: int, word: str, reason: str) -> SqlError:
    """Return the error for malformed SQL. Its message has the form of the engine's: the position, then the reason."""
    word, place = _place(sql, start, word)
    detail = f"syntax error at {word} in line {place['line']}, column {place['column']}: {reason}."
    return SqlError(detail, message=detail, **place)


def _place(sql: str, start: int, word: str) -> tuple[str, dict[str, int]]:
    word = word if len(word) <= _WORD_MAX else f"{word[:_WORD_MAX]}…"
    return word, {"line": sql.count("\n", 0, start) + 1, "column": start - sql.rfind("\n", 0, start)}

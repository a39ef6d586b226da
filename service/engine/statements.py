"""Which requests an engine is not even asked: those whose SQL names files of the server, or would change its engine.

SQL is read as the engine's tokenizer does (SQLite's tokenize.c, which PerfettoSQL shares), so that a word in a string
or a comment is none. Words of statements are refused wherever they stand bare, for a macro can move them to the start
of a statement; names of functions also where they are quoted. What gets by, the sandbox stops.
"""

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message

from service.engine import wire
from service.trace.errors import SqlRefused

FILES = "it works on files of the server"
SHARED = "it changes the engine, which others share; only pragmas that read can be asked"
HIDDEN = "it runs SQL that it gets as text, which must stand there as it is"

STATEMENTS = {"ATTACH": FILES, "DETACH": FILES, "VACUUM": FILES, "PRAGMA": SHARED}
FUNCTIONS = {
    **dict.fromkeys(("EXPORT_JSON", "WRITE_FILE", "READFILE", "WRITEFILE", "LOAD_EXTENSION"), FILES),
    **dict.fromkeys(("CREATE_FUNCTION", "CREATE_VIEW_FUNCTION", "RUN_METRIC"), HIDDEN),
}
READING_PRAGMAS = (
    "collation_list|compile_options|database_list|foreign_key_list|function_list|index_info|index_list|index_xinfo"
    "|integrity_check|module_list|pragma_list|quick_check|table_info|table_list|table_xinfo"
)

_START, _MORE = r"[A-Za-z_\x80-\U0010FFFF]", r"[A-Za-z0-9_$\x80-\U0010FFFF]"
_BLANK = r"(?: [\s\ufeff]++ | --[^\n]*+ | /\*.*?(?:\*/|\Z) )"
_STRING = r"(?: '(?: [^']++ | '' )*+ (?:'|\Z) )"
_WORDS = (*STATEMENTS, *FUNCTIONS)
_STATEMENT, _FUNCTION = "|".join(STATEMENTS), "|".join(FUNCTIONS)
_REFUSED = re.compile(
    rf"""
    (?: {_BLANK} | {_STRING}
      | [$@\#:] (?: {_MORE}++ | :: )++ (?: \( [^\s)]*+ \)? )?      # a variable
      | [0-9] {_MORE}*+
      | PRAGMA {_BLANK}*+ (?: {_START} {_MORE}*+ {_BLANK}*+ \. {_BLANK}*+ )? (?: {READING_PRAGMAS} ) (?!{_MORE})
      | (?! (?: {_STATEMENT} | {_FUNCTION} ) (?!{_MORE}) ) {_START} {_MORE}*+
      | (?! ["`\[] (?: {_FUNCTION} ) ["`\]] )
        (?: "(?: [^"]++ | "" )*+ (?:"|\Z) | `(?: [^`]++ | `` )*+ (?:`|\Z) | \[ [^\]]*+ (?:\]|\Z) )
      | [^A-Za-z0-9_'"`\[\-/$@\#:\s\x80-\U0010FFFF]++ | [-/$@\#:]
    )*+
    ["`\[]?+ (?P<word> {_STATEMENT} | {_FUNCTION} )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII | re.DOTALL,
)
_ARGUMENT = rf"{_BLANK}*+ {_STRING} {_BLANK}*+"
_PLAIN_CALL = re.compile(
    rf"""
    CREATE_(?:VIEW_)?FUNCTION {_BLANK}*+ \( {_ARGUMENT} , {_ARGUMENT} , {_ARGUMENT} \)
    | RUN_METRIC {_BLANK}*+ \( {_ARGUMENT} \)
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII | re.DOTALL,
)
"""Calls of what runs SQL that it gets as text, where that text stands there as a whole: the UI makes some."""

_TOKEN = re.compile(rf"{_BLANK} | (?P<string> {_STRING} ) | .", re.VERBOSE | re.DOTALL | re.ASCII)
_MENTIONED = re.compile(rf"(?<!{_MORE})(?P<word>{_STATEMENT}|{_FUNCTION})(?!{_MORE})", re.IGNORECASE | re.ASCII)


def check(request: Any) -> None:
    """See that a request to an engine carries no SQL that is refused; fields that nobody knows are taken out of it.

    Raises:
        SqlRefused: it does; `word`, `line` and `column` tell where.
    """
    request.DiscardUnknownFields()
    if request.request == wire.QUERY_STREAMING:
        check_sql(request.query_args.sql_query)
        return
    for text in _texts(request):  # parts of statements, which the engine puts together
        if found := _MENTIONED.search(text):
            raise _refusal(found["word"], found.start(), text)


def check_sql(sql: str) -> None:
    """See that these statements are ones that an engine is asked; raises `SqlRefused`."""
    upper = sql.upper()
    if any(word in upper for word in _WORDS) and (found := _found(sql)):  # mostly there is nothing to look for
        raise _refusal(*found, sql)


def _found(sql: str) -> tuple[str, int] | None:
    """The first word that is refused, and where it is; of one in SQL that stands there as text, where that begins."""
    position = 0
    while found := _REFUSED.match(sql, position):
        place = found.start("word")
        call = _PLAIN_CALL.match(sql, place)
        if call is None:
            return found["word"], place
        for token in _TOKEN.finditer(sql, place, call.end()):
            inner = _found(token["string"][1:-1].replace("''", "'")) if token["string"] else None
            if inner:
                return inner[0], token.start()
        position = call.end()
    return None


def _refusal(word: str, start: int, text: str) -> SqlRefused:
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    own = f' If it is a name of yours, write "{word}".' if word.upper() in STATEMENTS else ""
    word = word.upper()
    return SqlRefused(
        f"{word} in line {line}, column {column} is refused: {(STATEMENTS | FUNCTIONS)[word]}.{own}",
        word=word, line=line, column=column,
    )  # fmt: skip


def _texts(message: Message) -> Iterator[str]:
    """All texts in a message, also those of specifications that it carries as text."""
    for field, value in message.ListFields():
        for one in [value] if isinstance(value, str | bytes | int | float | Message) else value:
            if isinstance(one, Message):
                yield from _texts(one)
            elif isinstance(one, str):
                yield from _texts(_specification(one)) if field.name == "textproto_specs" else [one]


def _specification(text: str) -> Message:
    specification: Message = wire.TraceSummarySpec()
    try:
        return text_format.Parse(text, specification)
    except text_format.ParseError as error:
        raise SqlRefused(f"A specification that can't be read is not passed on: {error}") from error

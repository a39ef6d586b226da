"""The policy for clients' SQL: statements may read, but may change only names that their client has created.

SQL is split as the engine splits it (`service.engine.tokens`). The first words of a statement determine its kind; kinds
that are not listed here are refused. The engine expands macros only after this check. Bodies and arguments of macros
therefore must not contain words that change something, and a statement must spell out the name that it changes. The
sandbox is the second line of defence.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import NamedTuple

from service.engine.names import SCHEMAS, Change, Names
from service.engine.tokens import Kind, Token, malformed, refusal, tokens
from service.trace.errors import SqlError, SqlRefused

FILES = "it works on files of the server"
SHARED = "it changes the engine, which others share"
READS = f"{SHARED}; only pragmas that read are allowed"
HIDDEN = "it runs SQL from a text, which must be a literal"
MISPLACED = "it changes something where SQL can only read; make it a statement of its own"

NO_STATEMENT = (
    "no allowed statement begins so: SELECT, WITH, VALUES, EXPLAIN, INCLUDE PERFETTO MODULE, CREATE of a table, view,"
    " index, function or macro, DROP of a table, view or index, INSERT, UPDATE, DELETE"
)

_FILE_WORDS = dict.fromkeys(("ATTACH", "DETACH", "VACUUM"), FILES) | {"PRAGMA": READS}
_WRITING_WORDS = {"ALTER": SHARED} | dict.fromkeys(("CREATE", "DELETE", "DROP", "INSERT", "INTO", "UPDATE"), MISPLACED)
_FUNCTIONS = {
    **dict.fromkeys(("EXPORT_JSON", "WRITE_FILE", "READFILE", "WRITEFILE", "LOAD_EXTENSION"), FILES),
    **dict.fromkeys(("CREATE_FUNCTION", "CREATE_VIEW_FUNCTION", "RUN_METRIC"), HIDDEN),
}
_BARE = _FILE_WORDS | _WRITING_WORDS | _FUNCTIONS
_ENGINE_WORDS = dict.fromkeys(("ANALYZE", "BEGIN", "COMMIT", "REINDEX", "RELEASE", "ROLLBACK", "SAVEPOINT"), SHARED)
_MENTIONED = re.compile(rf"(?<![\w$])(?P<word>{'|'.join(_BARE | _ENGINE_WORDS)})(?![\w$])", re.IGNORECASE | re.ASCII)
_READING_PRAGMAS = frozenset(
    [
        "collation_list",
        "compile_options",
        "database_list",
        "foreign_key_list",
        "function_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "module_list",
        "pragma_list",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    ]
)
_PROTOTYPES = ("CREATE_FUNCTION", "CREATE_VIEW_FUNCTION")
_PROTOTYPE = re.compile(r"'([A-Za-z_][A-Za-z0-9_]*)\([^']*\)'", re.ASCII)
_READING = frozenset(("SELECT", "VALUES", "WITH", "INCLUDE", "EXPLAIN"))
_VIRTUAL_TABLES = frozenset(
    [
        "__intrinsic_counter_mipmap",
        "__intrinsic_slice_mipmap",
        "__intrinsic_window",
        "span_join",
        "span_left_join",
        "span_outer_join",
    ]
)


class Write(NamedTuple):
    """A name that a statement changes.

    Attributes:
        name: the token of the name.
        change: what the statement does to it.
        kind: the kind of object that the statement creates, such as `TABLE`; empty if it creates none.
        is_text: whether the name is inside a string literal, and is therefore not a token of the SQL.
    """

    name: Token
    change: Change
    kind: str = ""
    is_text: bool = False


def check_part(text: str) -> None:
    """Check a fragment from which the engine assembles SQL; raises `SqlRefused` for a word that changes something."""
    if mention := _MENTIONED.search(text):
        word = mention["word"].upper()
        raise refusal(text, mention.start(), word, (_BARE | _ENGINE_WORDS)[word])


def check_sql(sql: str, names: Names, client: Hashable = None) -> str:
    """Check statements of a client.

    Args:
        sql: the statements.
        names: the names in the engine, and their owners.
        client: the connection that sends the statements.

    Returns:
        The statements, with the client's substitutes for names that other clients own (see `Names`).

    Raises:
        SqlRefused: a statement is not allowed; `word`, `line` and `column` locate the cause.
        SqlError: the SQL is malformed.
    """
    sql_tokens = tokens(sql)
    writes: list[Write] = []
    for statement in _statements(sql, sql_tokens):
        writes += statement.writes()
    for write in writes:
        if reason := names.claim(str(write.name.name), write.change, client, write.kind):
            raise refusal(sql, write.name.start, write.name.text, reason)
    in_strings = [write.name for write in writes if write.is_text]
    if in_strings:
        sql_tokens = sorted([*sql_tokens, *in_strings], key=lambda token: token.start)
    return names.substitute(sql, sql_tokens, client)


def _statements(sql: str, sql_tokens: list[Token]) -> Iterator["_Statement"]:
    start = 0
    for end, token in enumerate([*sql_tokens, Token(Kind.MARK, ";", len(sql))]):
        if token.text == ";":
            if end > start:
                yield _Statement(sql, sql_tokens[start:end])
            start = end + 1


@dataclass
class _Statement:
    """A parser of one statement.

    Args:
        sql: the whole text, for the positions in errors.
        tokens: the statement's tokens.
        position: index of the next token.
        functions: the functions that the parsed part of the statement creates.
    """

    sql: str
    tokens: list[Token]
    position: int = 0
    functions: list[Write] = dataclass_field(default_factory=list)

    def writes(self) -> list[Write]:
        """Parse the statement and return the names that it changes; raises `SqlRefused` if its kind is not allowed."""
        self._check_parentheses()
        if self._skips("EXPLAIN") and self._skips("QUERY"):
            self._expects("PLAN")
        first = self._peek()
        if first in _READING and not (first == "WITH" and self._skip_to_writing()):
            return self._rest([])
        match self._peek():
            case "CREATE":
                return self._create()
            case "DROP":
                return self._drop()
            case "INSERT" | "REPLACE" | "UPDATE" | "DELETE":
                return self._rest([self._written_table()])
            case "PRAGMA":
                return self._pragma()
        raise self._unknown()

    # -- kinds of statements -----------------------------------------------------------------------------------

    def _create(self) -> list[Write]:
        self._expects("CREATE")
        replaces = self._skips("OR") and self._skips("REPLACE")
        if self._skips("PERFETTO"):
            return self._create_perfetto()
        if replaces:
            raise self._unknown()
        if self._skips("VIRTUAL"):
            return self._create_virtual()
        _ = self._skips("TEMP") or self._skips("TEMPORARY") or self._skips("UNIQUE")
        kind = self._kind("TABLE", "VIEW", "INDEX")
        if_not_exists = self._skips("IF")
        if if_not_exists:
            self._expects("NOT")
            self._expects("EXISTS")
        changes = [Write(self._name(), Change.CREATE, kind)]
        if kind == "INDEX":
            self._expects("ON")
            changes.append(Write(self._name(), Change.ALTER))
        return self._rest(changes)

    def _create_perfetto(self) -> list[Write]:
        kind = self._kind("TABLE", "VIEW", "INDEX", "FUNCTION", "MACRO")
        name = self._name(schema=False)
        if kind in ("FUNCTION", "MACRO") and name.kind != Kind.WORD:  # the engine makes the quotes part of the name
            raise refusal(self.sql, name.start, name.text, "names of functions and macros stand without quotes")
        changes = [Write(name, Change.CREATE, kind)]
        if kind == "INDEX":
            self._expects("ON")
            changes.append(Write(self._name(schema=False), Change.INDEX))
        return self._rest(changes, macro=kind == "MACRO")

    def _create_virtual(self) -> list[Write]:
        self._expects("TABLE")
        if self._skips("IF"):
            self._expects("NOT")
            self._expects("EXISTS")
        name = self._name()
        self._expects("USING")
        module = self._name(schema=False)
        if module.name not in _VIRTUAL_TABLES:
            kinds = ", ".join(sorted(_VIRTUAL_TABLES))
            raise refusal(self.sql, module.start, module.text, f"virtual tables can be of {kinds}")
        return self._rest([Write(name, Change.CREATE, "TABLE")])

    def _drop(self) -> list[Write]:
        self._expects("DROP")
        if self._skips("PERFETTO"):
            self._kind("INDEX")
            name = self._name(schema=False)
            self._expects("ON")
            self._name(schema=False)
            return self._rest([Write(name, Change.ALTER)])
        self._kind("TABLE", "VIEW", "INDEX")
        if self._skips("IF"):
            self._expects("EXISTS")
            return self._rest([Write(self._name(), Change.CREATE)])  # if another client owns the name, its object stays
        return self._rest([Write(self._name(), Change.ALTER)])

    def _written_table(self) -> Write:
        kind = self._expects("INSERT", "REPLACE", "UPDATE", "DELETE")
        if kind in ("INSERT", "UPDATE") and self._skips("OR"):
            self._expects("ABORT", "FAIL", "IGNORE", "REPLACE", "ROLLBACK")
        if kind in ("INSERT", "REPLACE"):
            self._expects("INTO")
        if kind == "DELETE":
            self._expects("FROM")
        return Write(self._name(), Change.ALTER)

    def _pragma(self) -> list[Write]:
        pragma = self.tokens[self.position]
        self.position += 1
        name = self.tokens[self.position : self.position + 3]
        if len(name) == 3 and name[1].text == ".":
            name = name[2:]
        if not name or name[0].name not in _READING_PRAGMAS:
            raise self._refusal(pragma, "PRAGMA", READS)
        return self._rest([])

    def _skip_to_writing(self) -> bool:
        """Move to the verb after the common table expressions if that verb writes; returns whether it does."""
        depth = 0
        for index, token in enumerate(self.tokens):
            depth += (token.text == "(") - (token.text == ")")
            word = token.text.upper() if token.kind == Kind.WORD and not depth else ""
            into = word == "REPLACE" and self._word_at(index + 1) == "INTO"
            if into or word in ("INSERT", "UPDATE", "DELETE"):
                self._check_words(self.tokens[self.position : index])
                self.position = index
                return True
            if word in ("SELECT", "VALUES"):
                return False
        return False

    # -- parts of statements -----------------------------------------------------------------------------------

    def _rest(self, changes: list[Write], *, macro: bool = False) -> list[Write]:
        self._check_words(self.tokens[self.position :], macro=macro)
        return [*changes, *self.functions]

    def _check_words(self, part: list[Token], *, macro: bool = False) -> None:
        """Check that a part of the statement only reads; raises `SqlRefused`."""
        for index, token in enumerate(part):
            if token.kind == Kind.WORD:
                word = token.text.upper()
                if word in _PROTOTYPES and not macro:
                    self.functions.append(self._function(token, part[index + 1 : index + 8]))
                elif word in _BARE and not self._allowed(word, part, index, macro=macro):
                    raise self._refusal(token, word, _BARE[word])
            elif token.kind == Kind.QUOTED and str(token.name).upper() in _FUNCTIONS:
                word = str(token.name).upper()
                raise self._refusal(token, word, _FUNCTIONS[word], offset=1)

    def _allowed(self, word: str, part: list[Token], index: int, *, macro: bool) -> bool:
        after = [token.text for token in part[index + 1 : index + 4]]
        if word == "RUN_METRIC":
            return len(after) == 3 and after[0] == "(" and part[index + 2].kind == Kind.STRING and after[2] == ")"
        before = part[index - 1].text.upper() if index else ""
        return not macro and word in ("UPDATE", "DELETE") and before in ("ON", "DO")

    def _function(self, call: Token, arguments: list[Token]) -> Write:
        """Return the write of the function that a call creates; raises `SqlRefused` unless the arguments are literals.

        The arguments are the prototype, the return type and the SQL.
        """
        form = "".join(token.text if token.kind == Kind.MARK else token.kind[0] for token in arguments)
        prototype = _PROTOTYPE.match(arguments[1].text) if form == "(s,s,s)" else None
        if prototype is None:
            raise self._refusal(call, call.text.upper(), HIDDEN)
        text = arguments[5]
        body = text.text[1:-1].replace("''", "'")
        try:
            inner = [write for part in _statements(body, tokens(body)) for write in part.writes()]
        except SqlRefused as error:
            raise refusal(self.sql, text.start, error.extra["word"], f"in this text, {error.detail}") from error
        if inner:
            raise refusal(self.sql, text.start, inner[0].name.text, "a function can't change it")
        name = Token(Kind.WORD, prototype[1], arguments[1].start + 1)
        return Write(name, Change.CREATE, "FUNCTION", is_text=True)

    def _refusal(self, token: Token, word: str, reason: str, *, offset: int = 0) -> SqlRefused:
        own = f'. If it is a name of yours, write "{token.text}"' if word in _FILE_WORDS else ""
        return refusal(self.sql, token.start + offset, word, reason + own)

    def _check_parentheses(self) -> None:
        depth = 0
        for token in self.tokens:
            depth += (token.text == "(") - (token.text == ")")
            if depth < 0:
                raise malformed(self.sql, token.start, ")", "no parenthesis is open here")
        if depth:
            token = self.tokens[-1]
            reason = f"{depth} parentheses are open at the statement's end"
            raise malformed(self.sql, token.start, token.text, reason)

    def _unknown(self) -> SqlRefused | SqlError:
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        word = token.text.upper()
        if word in _BARE or word in _ENGINE_WORDS:
            return self._refusal(token, word, (_BARE | _ENGINE_WORDS)[word])
        if self.position or self._mark("!", self.position + 1):
            return refusal(self.sql, token.start, token.text, NO_STATEMENT)
        return malformed(self.sql, token.start, token.text, NO_STATEMENT)

    def _word_at(self, index: int) -> str:
        if index < len(self.tokens) and self.tokens[index].kind == Kind.WORD:
            return self.tokens[index].text.upper()
        return ""

    def _peek(self) -> str:
        following = self.tokens[self.position + 1].text if self.position + 1 < len(self.tokens) else ""
        return "" if following == "!" else self._word_at(self.position)  # a macro can't begin a statement

    def _skips(self, word: str) -> bool:
        """Skip the next word if it is `word`; returns whether it was."""
        if self._word_at(self.position) != word:
            return False
        self.position += 1
        return True

    def _kind(self, *words: str) -> str:
        """Return the next word, which must be one of `words`; raises the error of an unknown statement otherwise."""
        if self._word_at(self.position) not in words:
            raise self._unknown()
        return self._expects(*words)

    def _expects(self, *words: str) -> str:
        """Return the next word, which must be one of `words`; raises `SqlError` otherwise."""
        word = self._word_at(self.position)
        if word not in words:
            raise self._unexpected(" or ".join(words))
        self.position += 1
        return word

    def _name(self, *, schema: bool = True) -> Token:
        """Return the next name, without its schema."""
        token = self._identifier()
        if schema and self._mark(".") and token.name in SCHEMAS:
            self.position += 1
            token = self._identifier()
        if self._mark("!") or self._mark("."):
            raise refusal(self.sql, token.start, token.text, "a plain name must stand here, no macro or schema")
        return token

    def _mark(self, text: str, position: int | None = None) -> bool:
        position = self.position if position is None else position
        return position < len(self.tokens) and self.tokens[position].text == text

    def _identifier(self) -> Token:
        if self.position >= len(self.tokens) or self.tokens[self.position].name is None:
            raise self._unexpected("a name, bare or in double quotes,")
        self.position += 1
        return self.tokens[self.position - 1]

    def _unexpected(self, expected: str) -> SqlError:
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
            return malformed(self.sql, token.start, token.text, f"{expected} must stand here")
        token = self.tokens[-1]
        return malformed(self.sql, token.start, token.text, f"{expected} must follow it")

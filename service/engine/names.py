"""The names of an engine: those that it was built with are nobody's to change, and each client has names of its own.

All clients share one engine, and so one set of tables, views, indexes, functions and macros. A client that creates a
name that another client has already gets its own: its SQL is written with that from then on.
"""

import re
from collections.abc import Hashable, Iterable
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path

from service.engine.sql import PACKAGE
from service.engine.tokens import Kind, Token, folded

RESERVED_PREFIXES = ("__intrinsic_", "_torch_", "_client", "pragma_", "sqlite_")
NAMES_MAX = 200_000  # of one engine, so that they take some 40 MB
_LASTING = ("FUNCTION", "INDEX", "MACRO")  # what can't be dropped, or not by its name alone
SCHEMAS = ("main", "temp")
LISTED = """
SELECT name FROM sqlite_master UNION SELECT name FROM sqlite_temp_master
UNION SELECT name FROM pragma_function_list UNION SELECT name FROM pragma_module_list
"""
"""SQL for the names that an engine has by now, but for its macros."""

_CREATED = re.compile(
    rb"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:PERFETTO\s+)?(?:TEMP(?:ORARY)?\s+)?(?:VIRTUAL\s+|UNIQUE\s+)?"
    rb"(?:TABLE|VIEW|FUNCTION|MACRO|INDEX|TRIGGER)\s+(?:IF\s+NOT\s+EXISTS\s+)?([A-Za-z_][A-Za-z0-9_$]*)",
    re.IGNORECASE,
)


class Change(Enum):
    """What a statement does to a name."""

    CREATE = auto()
    """Create or replace it, or drop it if it exists."""
    ALTER = auto()
    """Drop it, or write to its rows."""
    INDEX = auto()
    """Give it an index of the engine's, which changes no answer."""


class Names:
    """Who may change which name of one engine; names are in lower case, and all kinds of things share them.

    Args:
        built_in: names that no client may change.
    """

    def __init__(self, built_in: Iterable[str] = ()) -> None:
        self._built_in = set(built_in)
        self._owners: dict[str, Hashable] = {}
        self._own: dict[Hashable, dict[str, str]] = {}  # by client: what stands for a name that another one has
        self._kinds: dict[str, str] = {}  # by name, as it is in the engine
        self._numbers: dict[Hashable, int] = {}  # of clients that have names of this kind
        self._clients = 0

    def protect(self, names: Iterable[str]) -> None:
        """Let no client change these, either."""
        self._built_in.update(map(folded, names))

    def claim(self, name: str, change: Change, client: Hashable, kind: str = "") -> str | None:
        """Make a name this client's own; the reason, if it can't change it.

        Args:
            name: in lower case.
            change: what the client does to it.
            client: who asks.
            kind: what the name then is of: `TABLE`, `VIEW`…
        """
        if change is Change.INDEX and self._is_built_in(name):
            return None
        if self._is_built_in(name):
            return "it is the name of something built in, which all clients read: choose another name"
        if name not in self._owners and len(self._owners) >= NAMES_MAX:
            return f"clients have created {NAMES_MAX} names in this engine, which is the limit"
        own = self._own.get(client, {})
        if self._owners.setdefault(name, client) != client and name not in own:
            if change is not Change.CREATE:
                return "another client has created it: create your own, or choose another name"
            if len(own) >= NAMES_MAX:
                return f"you have {NAMES_MAX} names that other clients have, too, which is the limit"
            own = self._renamed(name, client)
        if change is Change.CREATE and self._kinds.get(own.get(name, name)) not in _LASTING:
            self._kinds[own.get(name, name)] = kind
        return None

    def _renamed(self, name: str, client: Hashable) -> dict[str, str]:
        own = self._own.setdefault(client, {})
        if client not in self._numbers:
            self._clients += 1
            self._numbers[client] = self._clients
        own[name] = f"_client{self._numbers[client]}_{name}"
        return own

    def left_by(self, client: Hashable) -> dict[str, str]:
        """The tables and views of a client that is gone, each with the statement that drops it: views first."""
        own = self._own.pop(client, {})
        self._numbers.pop(client, None)
        names = [*own.values(), *(name for name, owner in self._owners.items() if owner == client)]
        for name in names:
            if not self._kinds.get(name):
                self.release(name)
        kinds = {name: self._kinds[name] for name in names if self._kinds.get(name) in ("TABLE", "VIEW")}
        return {
            name: f"DROP {kind} IF EXISTS {_quoted(name)}"
            for name, kind in sorted(kinds.items(), key=lambda item: item[1], reverse=True)
        }

    def release(self, name: str) -> None:
        """Let any client create this name, which the engine has no more."""
        self._owners.pop(name, None)
        self._kinds.pop(name, None)

    def written(self, sql: str, tokens: list[Token], client: Hashable) -> str:
        """The SQL with the client's own names in place of those that other clients have."""
        own = self._own.get(client)
        if not own:
            return sql
        parts, end = [], 0
        for index, token in enumerate(tokens):
            name = token.name
            if name in own and not _is_column(tokens, index):
                parts += [sql[end : token.start], own[name] if token.kind == Kind.WORD else _quoted(own[name])]
                end = token.start + len(token.text)
        return "".join([*parts, sql[end:]])

    def _is_built_in(self, name: str) -> bool:
        return name in self._built_in or name.startswith(RESERVED_PREFIXES)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _is_column(tokens: list[Token], index: int) -> bool:
    """Whether a name stands behind a point, and that not behind a schema."""
    return index > 1 and tokens[index - 1].text == "." and tokens[index - 2].name not in SCHEMAS


def built_in_names(engine: Path) -> frozenset[str]:
    """Names that an engine's standard library, its metrics and our package `torch` create, included yet or not.

    An engine has no list of them, but carries their SQL as plain text.
    """
    state = engine.stat()
    return _scanned(engine, state.st_mtime_ns, state.st_size)


@lru_cache(4)
def _scanned(engine: Path, _mtime_ns: int, _size: int) -> frozenset[str]:
    files = [engine, *PACKAGE.glob("**/*.sql")]
    return frozenset(folded(name.decode()) for file in files for name in _CREATED.findall(file.read_bytes()))

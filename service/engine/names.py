"""The names in an engine: built-in names that no client may change, and the names that each client has created.

All clients of a trace share one engine, and so one set of tables, views, indexes, functions and macros. If a client
creates a name that another client already owns, the engine gets a substitute name instead. The client's SQL is
rewritten to the substitute from then on.
"""

from collections.abc import Hashable, Iterable
from enum import Enum, auto

from service.engine.tokens import Kind, Token, folded

RESERVED_PREFIXES = ("__intrinsic_", "_torch_", "_client", "pragma_", "sqlite_")
NAMES_MAX = 200_000  # in one engine: they take some 40 MB
_PERMANENT = ("FUNCTION", "INDEX", "MACRO")  # kinds that can't be dropped, or not by the name alone
SCHEMAS = ("main", "temp")
LISTED = """
SELECT name FROM sqlite_master UNION SELECT name FROM sqlite_temp_master
UNION SELECT name FROM pragma_function_list UNION SELECT name FROM pragma_module_list
"""
"""SQL for the current names of an engine, except for its macros."""


class Change(Enum):
    """The change that a statement makes to the object with a name."""

    CREATE = auto()
    """Create or replace the object, or drop it if it exists."""
    ALTER = auto()
    """Drop the object, write to its rows, or add an SQLite index to it."""
    INDEX = auto()
    """Add a Perfetto index to the table, which changes no result."""


class Names:
    """The owners of the names in one engine; names are in lower case, and all kinds of objects share one namespace.

    Args:
        built_in: names that no client may change.
    """

    def __init__(self, built_in: Iterable[str] = ()) -> None:
        self._built_in = set(built_in)
        self._owners: dict[str, Hashable] = {}
        self._aliases: dict[Hashable, dict[str, str]] = {}  # by client: substitutes for the names of other clients
        self._kinds: dict[str, str] = {}  # by name in the engine
        self._numbers: dict[Hashable, int] = {}  # by client, if it has aliases
        self._clients = 0

    def protect(self, names: Iterable[str]) -> None:
        """Add names that no client may change."""
        self._built_in.update(map(folded, names))

    def claim(self, name: str, change: Change, client: Hashable, kind: str = "") -> str | None:
        """Claim a name for a client; returns None, or the reason why the client can't change the name.

        Args:
            name: in lower case.
            change: the change that the client makes.
            client: the client's connection.
            kind: the kind of object that the statement creates, such as `TABLE` or `VIEW`; empty if it creates none.
        """
        if change is Change.INDEX and self._is_built_in(name):
            return None
        if self._is_built_in(name):
            return "it is the name of something built in, which all clients read: choose another name"
        if name not in self._owners and len(self._owners) >= NAMES_MAX:
            return f"clients have created {NAMES_MAX} names in this engine, which is the limit"
        aliases = self._aliases.get(client, {})
        if self._owners.setdefault(name, client) != client and name not in aliases:
            if change is not Change.CREATE:
                return "another client has created it: create your own, or choose another name"
            if len(aliases) >= NAMES_MAX:
                return f"you have {NAMES_MAX} names that other clients have, too, which is the limit"
            aliases = self._add_alias(name, client)
        if change is Change.CREATE and self._kinds.get(aliases.get(name, name)) not in _PERMANENT:
            self._kinds[aliases.get(name, name)] = kind
        return None

    def _add_alias(self, name: str, client: Hashable) -> dict[str, str]:
        aliases = self._aliases.setdefault(client, {})
        if client not in self._numbers:
            self._clients += 1
            self._numbers[client] = self._clients
        aliases[name] = f"_client{self._numbers[client]}_{name}"
        return aliases

    def left_by(self, client: Hashable) -> dict[str, str]:
        """Return the statements that drop the tables and views of a client that has disconnected, by name, views first.

        Names of the client that have no object are released.
        """
        aliases = self._aliases.pop(client, {})
        self._numbers.pop(client, None)
        names = [*aliases.values(), *(name for name, owner in self._owners.items() if owner == client)]
        for name in names:
            if not self._kinds.get(name):
                self.release(name)
        kinds = {name: self._kinds[name] for name in names if self._kinds.get(name) in ("TABLE", "VIEW")}
        return {
            name: f"DROP {kind} IF EXISTS {_quoted(name)}"
            for name, kind in sorted(kinds.items(), key=lambda item: item[1], reverse=True)
        }

    def release(self, name: str) -> None:
        """Release a name after its object was dropped, so that any client may create it."""
        self._owners.pop(name, None)
        self._kinds.pop(name, None)

    def substitute(self, sql: str, tokens: list[Token], client: Hashable) -> str:
        """Return the SQL with the client's substitutes in place of names that other clients own."""
        aliases = self._aliases.get(client)
        if not aliases:
            return sql
        parts, end = [], 0
        for index, token in enumerate(tokens):
            name = token.name
            if name in aliases and not _is_column(tokens, index):
                parts += [sql[end : token.start], aliases[name] if token.kind == Kind.WORD else _quoted(aliases[name])]
                end = token.start + len(token.text)
        return "".join([*parts, sql[end:]])

    def _is_built_in(self, name: str) -> bool:
        return name in self._built_in or name.startswith(RESERVED_PREFIXES)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _is_column(tokens: list[Token], index: int) -> bool:
    """Return whether the name at `index` is a column: a dot precedes it, and no schema precedes the dot."""
    return index > 1 and tokens[index - 1].text == "." and tokens[index - 2].name not in SCHEMAS

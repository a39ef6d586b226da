"""The command `completion`, and the completions that its scripts ask for.

A script runs `tracedock` with the command line up to the cursor in TRACEDOCK_COMPLETE. The answer has a line for each
completion, with a tab and a description. Without completions the shell offers files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from glob import escape
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlsplit

import typer
from typer.core import TyperArgument, TyperGroup

from service.analysis.names import NAMES
from service.cli.commands import choices_of, option_names, takes_value

VARIABLE = "TRACEDOCK_COMPLETE"
_TIMEOUT_S = 0.3
_LISTED_MAX = 200
_DEFAULT_URL = "http://127.0.0.1:8700"


class Shell(StrEnum):
    """Shells with completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


_SCRIPTS = {
    Shell.bash: r"""_tracedock() {
    local line="${COMP_LINE:0:COMP_POINT}" last="${COMP_WORDS[COMP_CWORD]}" value word prefix
    word="${line##* }"
    [[ $last == [=:] ]] && last=""
    prefix="${word%"$last"}"
    COMPREPLY=()
    while IFS=$'\t' read -r value _; do
        value="$(printf %q "$value")"
        COMPREPLY+=("${value#"$prefix"}")
    done < <(TRACEDOCK_COMPLETE="$line" "${1/#\~/$HOME}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default
    elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace
    fi
}
complete -F _tracedock tracedock
""",
    Shell.zsh: r"""#compdef tracedock
_tracedock() {
    local -a items
    local value text
    while IFS=$'\t' read -r value text; do
        items+=("${value//:/\\:}:$text")
    done < <(TRACEDOCK_COMPLETE="${(j: :)words[1,CURRENT]}" "${words[1]/#\~/$HOME}" 2>/dev/null)
    if (( $#items )); then _describe -V tracedock items; else _files; fi
}
if [ "$funcstack[1]" = _tracedock ]; then _tracedock "$@"; else compdef _tracedock tracedock; fi
""",
    Shell.fish: r"""function __tracedock_complete
    set -lx TRACEDOCK_COMPLETE (commandline -cp | string collect)
    set -l items (tracedock 2>/dev/null)
    if test (count $items) -gt 0
        string join \n -- $items
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c tracedock -f -k -a '(__tracedock_complete)'
""",
}


class Item(NamedTuple):
    """A completion, with a few words about it."""

    value: str
    text: str = ""


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script that completes commands, options, traces and groups in a shell.

    Traces and groups are those of the server, if it answers within 0.3 seconds.
    """
    print(_SCRIPTS[shell], end="")


def print_completions(root: Any, line: str) -> None:
    """Print the completions of the last word of a command line."""
    words, current = _words(line)
    for value, text in complete(root, words, current):
        if value.startswith(current) and value.isprintable():
            print(value, text.partition("\n")[0].partition(". ")[0].removesuffix("."), sep="\t")


def complete(root: TyperGroup, words: Sequence[str], current: str) -> Iterator[Item]:
    """Yield completions of a word; the caller keeps those that begin with it.

    Args:
        root: the command line.
        words: the words before, without the program's name.
        current: the start of the word to complete.
    """
    place = _place(root, words)
    server = _Server(words)
    if place.option is not None:
        yield from _values(place.option, current, server)
    elif current.startswith("--") and "=" in current:
        name, _, value = current.partition("=")
        option = _option(place.command, root, name)
        for item in _values(option, value, server) if option else ():
            yield Item(f"{name}={item.value}", item.text)
    elif current.startswith("-") and not place.only_arguments:
        for param in (*place.command.params, *root.params):
            for name in option_names([param]):
                yield Item(name, param.help or "")
        yield Item("--help", "Show this message and exit.")
    elif isinstance(place.command, TyperGroup) and not place.arguments:
        for name, command in place.command.commands.items():
            if not command.hidden:
                yield Item(name, command.get_short_help_str(80))
    elif (argument := _argument(place)) is not None:
        yield from _values(argument, current, server)


class _Place(NamedTuple):
    """The place of a word on a command line.

    Attributes:
        command: the command that the words before name.
        arguments: number of its arguments before the word.
        option: the option whose value the word is.
        only_arguments: whether `--` came before.
    """

    command: Any
    arguments: int
    option: Any
    only_arguments: bool


def _place(root: TyperGroup, words: Iterable[str]) -> _Place:
    command: Any = root
    arguments, option, only_arguments = 0, None, False
    for word in words:
        if option is not None:
            option = None
        elif word == "--":
            only_arguments = True
        elif word.startswith("-") and word != "-" and not only_arguments:
            named = _option(command, root, word)
            option = named if named is not None and takes_value(named) else None
        elif isinstance(command, TyperGroup) and word in command.commands:
            command = command.commands[word]
        else:
            arguments += 1
    return _Place(command, arguments, option, only_arguments)


def _option(command: Any, root: TyperGroup, name: str) -> Any:
    return next((p for p in (*command.params, *root.params) if name in option_names([p])), None)


def _argument(place: _Place) -> Any:
    arguments = [param for param in place.command.params if isinstance(param, TyperArgument)]
    if place.arguments < len(arguments):
        return arguments[place.arguments]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _values(param: Any, current: str, server: _Server) -> Iterator[Item]:
    """Yield the values of an option or an argument: its choices, or what its metavar names, like `TRACE|FILE`."""
    if choices := choices_of(param):
        yield from map(Item, choices)
        return
    for kind in re.split(r"[|]", (param.metavar or "").removesuffix("…").removesuffix("...")):
        if source := _SOURCES.get(kind):
            yield from source(server, current)


def _words(line: str) -> tuple[list[str], str]:
    """Split a command line like a shell: the words after the program's name, and the last word, which may be empty."""
    for end in ("", "'", '"', "\\"):
        try:
            words = shlex.split(line + end)
            break
        except ValueError:  # an open quote, or a backslash at the end
            continue
    else:
        words = line.split()
    return (words[1:], "") if not words or line[-1:].isspace() else (words[1:-1], words[-1] if len(words) > 1 else "")


# -- values of the server ---------------------------------------------------------------------------------------------


class _Server:
    """The server that a command line names, asked with a short timeout."""

    def __init__(self, words: Sequence[str]) -> None:
        self._url = _after("--url", words) or os.environ.get("TRACEDOCK_URL") or _DEFAULT_URL
        self._token = _after("--token", words) or os.environ.get("TRACEDOCK_TOKEN") or ""

    def items(self, name: str, query: str = "") -> list[dict[str, Any]]:
        """Return the items of a list of the API; none if no server answers in time, or if it refuses."""
        try:
            parts = urlsplit(self._url)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            path = f"{parts.path.rstrip('/')}/api/v1/{name}?limit={_LISTED_MAX}{query}"
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            with closing(kind(parts.netloc.rpartition("@")[2], timeout=_TIMEOUT_S)) as connection:
                connection.request("GET", path, headers=headers)
                items = json.load(connection.getresponse())[name]
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            return []  # a completion must not disturb the line that the user writes
        return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _after(option: str, words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _traces(server: _Server, current: str) -> Iterator[Item]:
    yield Item("latest", "the newest trace")
    is_id = re.fullmatch("[0-9a-f]+", current) is not None
    traces = server.items("traces", "" if is_id else f"&name={quote(current)}")
    names = [trace["name"] for trace in traces]
    for trace in traces:
        if trace["name"].startswith(current) and names.count(trace["name"]) == 1:
            yield Item(trace["name"], trace["id"])
        if is_id or names.count(trace["name"]) > 1 or not trace["name"].isprintable():
            yield Item(trace["id"], trace["name"])


def _groups(server: _Server, current: str) -> Iterator[Item]:
    for group in server.items("groups", f"&name={quote(current)}"):
        yield Item(group["name"], f"group of {group['traces']} traces")


def _jobs(server: _Server, _: str) -> Iterator[Item]:
    for job in server.items("jobs"):
        yield Item(job["id"], f"{job['kind']}, {job['state']}")


def _imports(server: _Server, _: str) -> Iterator[Item]:
    for listed in server.items("imports"):
        yield Item(listed["id"], listed["path"])


def _files(_: _Server, current: str) -> Iterator[Item]:
    folder, separator, start = current.rpartition(os.sep)
    for path in sorted(Path(folder + separator).expanduser().glob(f"{escape(start)}*")):
        yield Item(folder + separator + path.name + (os.sep if path.is_dir() else ""))


_SOURCES: dict[str, Callable[[_Server, str], Iterator[Item]]] = {
    "TRACE": _traces,
    "GROUP": _groups,
    "JOB": _jobs,
    "IMPORT": _imports,
    "FILE": _files,
    "ANALYSIS": lambda *_: map(Item, NAMES),
}
"""Completions by the words of a metavar."""

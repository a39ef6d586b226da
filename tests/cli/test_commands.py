"""Help of all commands, and the form of wrong usage."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.core import TyperArgument, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from service.analysis.catalogue import QUESTIONS
from service.cli.commands import SELECTION, choices_of, option_names, takes_value
from service.cli.examples import EXAMPLES
from service.cli.main import app
from service.trace.selection_fields import FIELDS

ROOT: Any = get_command(app)


def command_of(path: str) -> Any:
    command = ROOT
    for word in path.split():
        command = command.commands[word]
    return command


def walk(command: Any, path: str = "") -> dict[str, Any]:
    """Return all commands and groups by their words."""
    found = {path: command}
    if isinstance(command, TyperGroup):
        for name, sub in command.commands.items():
            found |= walk(sub, f"{path} {name}".strip())
    return found


COMMANDS = walk(ROOT)


def help_of(path: str) -> str:
    """Return the help of a command, for the width that COLUMNS gives."""
    context = ROOT.make_context("tracedock", [], resilient_parsing=True)
    for word in path.split():
        context = context.command.commands[word].make_context(word, [], parent=context, resilient_parsing=True)
    return str(context.get_help())


@pytest.mark.parametrize("path", COMMANDS)
def test_options_with_a_value_have_a_metavar_and_all_have_help(path: str) -> None:
    for param in COMMANDS[path].params:
        assert param.help, param.name
        if takes_value(param) or isinstance(param, TyperArgument):
            assert param.metavar or choices_of(param), param.name
            assert param.metavar not in {"TEXT", "INTEGER", "FLOAT", "FILENAME"}
            assert "[" not in (param.metavar or ""), "the usage line encloses what is optional"
    assert not re.search(r"<\w+>", help_of(path))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for path in COMMANDS:
        examples = {f"  {example}" for example in EXAMPLES[path]}
        lines = [line for line in help_of(path).splitlines() if line not in examples]
        assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("path", COMMANDS)
def test_command_has_examples_of_options_that_exist(path: str) -> None:
    assert EXAMPLES[path]
    for example in EXAMPLES[path]:
        assert example in help_of(path)
        words = shlex.split(re.sub(r"^.*?tracedock |\)$| [|>] .*$", "", example))
        names: list[str] = []
        while words and words[0] in getattr(command_of(" ".join(names)), "commands", {}):
            names.append(words.pop(0))
        known = {*option_names((*command_of(" ".join(names)).params, *ROOT.params))}
        assert {word for word in words if word.startswith("--")} <= known, example


def test_examples_are_of_commands_and_analyses_that_exist() -> None:
    assert {*EXAMPLES} == {*COMMANDS}
    named = [example.split() for example in EXAMPLES["analyze"]]
    assert {words[3] for words in named if len(words) > 3} <= {*QUESTIONS}


@pytest.mark.parametrize("path", ["download", "split", "query", "analyze", "report", "open"])
def test_options_of_a_selection_are_a_section_of_the_help(path: str) -> None:
    section = help_of(path).partition(f"{SELECTION} options:\n")[2].partition("\n\n")[0]
    expected = {field.option for field in FIELDS if field.option} | {"--selection"}
    assert {*re.findall(r"^  (--[a-z-]+)", section, re.MULTILINE)} == expected


def test_help_of_a_command_lists_the_options_of_every_command() -> None:
    text = help_of("groups show").partition("Options of every command:")[2]
    assert all(name in text for name in ("--url", "--token", "--quiet", "--wide", "--help"))


def test_bare_group_prints_its_help() -> None:
    for arguments in ([], ["token"]):
        result = CliRunner().invoke(app, arguments, prog_name="tracedock")
        assert (result.exit_code, "Examples:" in result.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["lss"], "no such command 'lss'. Did you mean 'ls'?", "tracedock"),
        (["ls", "--stat", "x"], "no such option: --stat (Possible options: --state)", "tracedock ls"),
        (["show"], "missing argument 'TRACE'", "tracedock show"),
        (["ls", "--state", "gone"], "--state", "tracedock ls"),
        (["ls", "--limit", "x"], "--limit", "tracedock ls"),
        (["groups", "show", "a", "b"], "unexpected extra argument", "tracedock groups show"),
        (["upload", "/no/such"], "/no/such", "tracedock upload"),
        (["upload", "-"], "the standard input has no name", "tracedock upload"),
        (["--url", "x", "ls"], "is not the URL of a server", "tracedock"),
    ],
)
def test_wrong_usage_has_the_form_of_other_errors_and_names_the_help(
    arguments: list[str], message: str, command: str
) -> None:
    result = CliRunner().invoke(app, arguments, prog_name="tracedock")
    assert (result.exit_code, result.stdout) == (2, "")
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in result.stderr
    assert last == f"See `{command} --help`."

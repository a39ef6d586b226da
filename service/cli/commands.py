"""Commands and groups of commands, with help in sections and with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import CommandInfo

from service.cli.examples import EXAMPLES

SELECTION, WORKER, OUTPUT = "Selection", "Worker", "Output"
"""Sections of options in the help, beside those without a section."""
_SECTIONS = ("", SELECTION, WORKER, OUTPUT)
_EVERYWHERE = "Options of every command"
_WIDEST_HELP = 100
_WIDE, _WIDEST_NAMES, _NARROW_NAMES = 70, 30, 16
"""Width of a help page from which on longer names stand beside their text, and the widest of these names."""
_NAMED_OUTPUT = frozenset({"--json", "--output", "--format", "--force", "--limit"})
"""Options that belong to the output in every command."""


class _Help:
    """Help of a command or a group: its usage, arguments, options by section, and examples."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name: `[options] TRACE [NAME]`."""
        arguments = [p for p in ctx.command.params if isinstance(p, TyperArgument) and not p.hidden]
        sub = ["COMMAND …"] if isinstance(ctx.command, TyperGroup) else []
        return ["[options]", *map(_usage, arguments), *sub]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the subcommands, and the options by section."""
        params = [param for param in ctx.command.get_params(ctx) if not param.hidden]
        arguments = [p for p in params if isinstance(p, TyperArgument)]
        own_help = ctx.command.get_help_option(ctx)
        options = [p for p in params if isinstance(p, TyperOption) and (p is not own_help or ctx.parent is None)]
        _write(formatter, "Arguments", [(_usage(p).strip("[]"), p.help or "") for p in arguments])
        if isinstance(ctx.command, TyperGroup):
            ctx.command.format_commands(ctx, formatter)
        for section in _SECTIONS:
            records = [_record(ctx, p) for p in options if _section(p) == section]
            _write(formatter, f"{section} options".strip().capitalize(), records)
        if ctx.parent is not None:
            root = ctx.find_root()
            inherited = [p for p in root.command.params if not p.is_eager]
            _write(formatter, _EVERYWHERE, [*(_record(root, p) for p in inherited), _record(ctx, own_help)])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, and then the epilog."""
        if examples := EXAMPLES.get(_path(ctx)):
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        super().format_epilog(ctx, formatter)  # type: ignore[misc] # the command is the other base


class Command(_Help, TyperCommand):
    """Command of the command line."""


class Group(_Help, TyperGroup):
    """Group of commands; without arguments, one that needs a command prints its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their first sentences."""
        _write(
            formatter,
            "Commands",
            [
                (name, command.get_short_help_str(1000))
                for name, command in ctx.command.commands.items()
                if not command.hidden
            ],
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the group."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """Command line whose commands and groups are `Command` and `Group`."""

    def __init__(self, cls: type[Group], **settings: Any) -> None:
        super().__init__(
            cls=cls, context_settings={"max_content_width": _WIDEST_HELP}, add_completion=False,
            pretty_exceptions_enable=False, rich_markup_mode=None, **settings,
        )  # fmt: skip

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a command."""
        return super().command(name, **{"cls": Command} | settings)

    def add_typer(self, typer_instance: typer.Typer, **settings: Any) -> None:
        """Add a group of commands, with the help of this command line."""
        for command in typer_instance.registered_commands:
            command.cls = Command
        super().add_typer(typer_instance, **{"cls": Group} | settings)

    def keep_only(self, name: str) -> None:
        """Drop all commands and groups except that of a name, if there is one: it takes long to build them all."""
        commands = [each for each in self.registered_commands if _name_of(each) == name]
        groups = [each for each in self.registered_groups if each.name == name]
        if commands or groups:
            self.registered_commands, self.registered_groups = commands, groups


def _name_of(command: CommandInfo) -> str:
    return command.name or get_command_name(command.callback.__name__ if command.callback else "")


def option_names(params: Iterable[Any]) -> Iterator[str]:
    """Yield the names of options: `--output`, `-o`."""
    for param in params:
        if isinstance(param, TyperOption) and not param.hidden:
            yield from (*param.opts, *param.secondary_opts)


def choices_of(param: Any) -> list[str]:
    """Return the values that an option or an argument allows; empty for any value."""
    descriptor = param.type_descriptor
    return (
        [str(getattr(choice, "value", choice)) for choice in descriptor.choices or ()] if descriptor.is_choice else []
    )


def takes_value(param: Any) -> bool:
    """Return whether an option takes a value."""
    return isinstance(param, TyperOption) and not param.is_flag and not param.count


def _path(ctx: Any) -> str:
    """Return the words of a command: `groups show`."""
    return str(ctx.command_path).partition(" ")[2]


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _section(option: TyperOption) -> str:
    if option.rich_help_panel:
        return str(option.rich_help_panel)
    return OUTPUT if _NAMED_OUTPUT.intersection(option.opts) else ""


def _record(ctx: Any, option: TyperOption) -> tuple[str, str]:
    """Return an option's names with its metavar, and its help with its default."""
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f" / {name}" for name in option.secondary_opts)
    if takes_value(option):
        names += f" {option.metavar or '|'.join(choices_of(option))}"
    default = option.get_default(ctx, call=False)
    facts = []
    if option.required:
        facts.append("required")
    if takes_value(option) and default not in (None, "", ()):
        value = getattr(default, "value", default)
        facts.append(f"default: {value:g}" if isinstance(value, float) else f"default: {value}")
    if option.envvar:
        facts.append(f"environment: {option.envvar}")
    text = (option.help or "").strip()
    return names, f"{text} [{'; '.join(facts)}]" if facts else text


def _write(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    if records:
        with formatter.section(title):
            formatter.write_dl(records, col_max=_WIDEST_NAMES if formatter.width >= _WIDE else _NARROW_NAMES)

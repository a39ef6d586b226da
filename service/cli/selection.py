"""Options that select a part of a trace, derived from the declaration of a selection's fields."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import typer

from service.cli.commands import SELECTION
from service.cli.units import nanoseconds
from service.trace.selection_fields import (
    FIELDS,
    VALUES_MAX,
    Args,
    SelectionField,
    ValueKind,
    ViewSource,
    id_or_name,
    nested,
)

Json: TypeAlias = dict[str, Any]
"""Object of the API."""

_RANGE = re.compile(r"(-?[0-9]{1,19})(?:-([0-9]{1,19}))?")
_IDS = re.compile(r"-?[0-9]{1,18}(?:/-?[0-9]{1,18})?(?:,-?[0-9]{1,18}(?:/-?[0-9]{1,18})?)*")

ArgsOption = Annotated[
    Args, typer.Option("--args", help="Event arguments to load into the engine; with fewer it loads faster.")
]

UiArgsOption = Annotated[
    Args | None,
    typer.Option("--args", help="Event arguments to load; by default, of a large trace the essential ones."),
]

SourceOption = Annotated[
    ViewSource | None,
    typer.Option(
        "--source",
        help="What the engine loads: the events in columns, or the original of a Perfetto trace as it is, with packets"
        " of other kinds. The default is columns, or original if the trace has no events.",
    ),
]

_JSON = inspect.Parameter(
    "as_json_text",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            "--selection",
            metavar="JSON",
            help="The whole selection as JSON of the API, or @FILE, instead of the other options of this section.",
            rich_help_panel=SELECTION,
        ),
    ],
)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a selection to a command; the selection's JSON becomes its argument ``selection``."""
    own = inspect.signature(command, eval_str=True)
    options = option_parameters(FIELDS)

    @wraps(command)
    def run(**arguments: Any) -> None:
        values = {option.name: arguments.pop(option.name) for option in options}
        command(**arguments, selection=selection_of(values))

    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "selection"] + options
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    runner = cast("Any", run)
    runner.__signature__ = own.replace(parameters=keywords)
    runner.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def option_parameters(fields: Iterable[SelectionField]) -> list[inspect.Parameter]:
    """Return a Typer parameter for each field that has an option, and one for the whole selection as JSON."""
    return [*(_parameter(field) for field in fields if field.option), _JSON]


def _parameter(field: SelectionField) -> inspect.Parameter:
    kind: Any = str | None
    if field.is_list:
        kind = list[str] | None
    elif field.choices:
        kind = Literal[field.choices] | None
    elif field.kind is ValueKind.OMISSION:
        kind = bool
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[
            kind,
            typer.Option(field.option, metavar=field.metavar or None, help=_help(field), rich_help_panel=SELECTION),
        ],
    )


def _help(field: SelectionField) -> str:
    if field.kind is ValueKind.OMISSION:
        return f"Do not add {field.description}."
    text = field.description.replace("`", "")
    return f"{text[0].upper()}{text[1:]}{_SYNTAX.get(field.kind, '')}."


_SYNTAX = {
    ValueKind.INTEGERS: " (ranges like 3-7 are allowed)",
    ValueKind.IDS: " (repeatable)",
    ValueKind.NAMES: " (repeatable)",
    ValueKind.NANOSECONDS: " (in ns, or with a unit: 5us, 1.5ms, 2s)",
}


def selection_of(values: dict[str, Any], fields: Iterable[SelectionField] = FIELDS) -> Json | None:
    """Convert the values of the options into the JSON of a selection; None for the whole trace.

    Args:
        values: the values of the options, by parameter name.
        fields: the fields of a selection; those without an option are skipped.

    Raises:
        typer.BadParameter: a value is malformed, or the selection is invalid.
    """
    selection = nested(
        (field, _PARSERS[field.kind](field.option, values[field.name])) for field in fields if field.option
    )
    text = values[_JSON.name]
    if text is None:
        return _validated(selection, "the selection") if selection else None
    if selection:
        raise typer.BadParameter(
            "it is the whole selection; no other option of it is allowed", param_hint="--selection"
        )
    return _validated(_read(text, "--selection"), "--selection")


def parsed(text: str, hint: str) -> Json:
    """Parse the JSON of a selection, or of the file after an @; empty for all events.

    Args:
        text: the value of the option.
        hint: the option's name, for errors.

    Raises:
        typer.BadParameter: the file can't be read, or the selection is invalid.
    """
    return _validated(_read(text, hint), hint) or {}


def as_text(selection: Json | None) -> str:
    """Return a selection on one line; empty for the whole trace."""
    return json.dumps(selection, separators=(",", ":"), ensure_ascii=False) if selection else ""


def _validated(value: str | Json, hint: str) -> Json | None:
    """Validate a selection, and return it without default values; None if it has only these."""
    from service.trace.errors import BadSelection  # noqa: PLC0415 - slow to import, and most commands don't need it
    from service.trace.selection import Selection  # noqa: PLC0415

    try:
        return Selection.parsed(value).as_dict() or None
    except BadSelection as error:
        raise typer.BadParameter(error.detail, param_hint=hint) from error


def _read(text: str, hint: str) -> str:
    """Return the text, or the content of the file that it names after an @."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{text[1:]} can't be read: {error}", param_hint=hint) from error


# -- parsers of options' values ---------------------------------------------------------------------------------------


def _span(option: str, text: str | None) -> Json | None:
    if text is None:
        return None
    start, dots, end = (side.strip() for side in text.partition(".."))
    sides = [side for side in (start, end) if side]
    if not dots or not sides:
        raise typer.BadParameter(f"{text!r} is not START..END", param_hint=option)
    if len({side.startswith("@") for side in sides}) > 1:
        raise typer.BadParameter("put an @ before both sides, or before neither", param_hint=option)
    first, last = (_time(option, side.removeprefix("@") or None) for side in (start, end))
    if first is not None and last is not None and last <= first:
        raise typer.BadParameter(f"{text!r} does not end after its start", param_hint=option)
    window = {"start_ns": first, "end_ns": last, "relative": None if sides[0].startswith("@") else True}
    return {name: value for name, value in window.items() if value is not None}


def _time(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else nanoseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def numbers(option: str, text: str) -> Iterator[int]:
    """Yield the integers of ``3,4`` and ``5-7``; raise `typer.BadParameter` for other text."""
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise typer.BadParameter(f"{item!r} is neither a number nor a range like 3-7", param_hint=option)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise typer.BadParameter(f"{item!r} ends before it starts", param_hint=option)
        if last - first >= VALUES_MAX:  # a range must not fill the memory before the server refuses it
            raise typer.BadParameter(f"{item!r} has more than {VALUES_MAX} values", param_hint=option)
        yield from range(first, last + 1)


def _integers(option: str, texts: list[str] | None) -> list[int] | None:
    return _distinct(number for text in texts or () for number in numbers(option, text))


def _words(_: str, texts: list[str] | None) -> list[str] | None:
    return _distinct(word.strip() for text in texts or () for word in text.split(","))


def _ids(_: str, texts: list[str] | None) -> list[int | str] | None:
    """Return ids and names. A text of ids may list several, with commas between; any other text is one name."""
    items = (item for text in texts or () for item in (text.split(",") if _IDS.fullmatch(text) else [text]))
    return _distinct(id_or_name(item) for item in items)


def _distinct(values: Iterator[Any]) -> list[Any] | None:
    return list(dict.fromkeys(values)) or None


_PARSERS: dict[ValueKind, Callable[[str, Any], Any]] = {
    ValueKind.INTEGERS: _integers,
    ValueKind.IDS: _ids,
    ValueKind.WORDS: _words,
    ValueKind.NAMES: lambda _, texts: texts or None,
    ValueKind.NANOSECONDS: _time,
    ValueKind.SPAN: _span,
    ValueKind.NAME: lambda _, text: text,
    ValueKind.CHOICE: lambda _, choice: choice,
    ValueKind.SWITCH: lambda _, on: on or None,
    ValueKind.OMISSION: lambda _, omitted: False if omitted else None,
}
"""Parsers of options' values, by kind of field.

A parser takes the option's name, for error messages, and the value. It returns None if the option was not given.
"""

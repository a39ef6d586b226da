"""The options that say what of a trace a command is about; shared by all commands that take a part of a trace."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from service.cli.client import Json
from service.cli.units import nanoseconds

_VALUES_MAX = 10_000  # of one criterion, as the server has it; a range must not fill the memory before it is asked
_RANGE = re.compile(r"(-?[0-9]{1,19})(?:-([0-9]{1,19}))?")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NUMBERS = re.compile(r"-?[0-9]{1,18}(?:/-?[0-9]{1,18})?(?:,-?[0-9]{1,18}(?:/-?[0-9]{1,18})?)*")


class Straddle(StrEnum):
    """What becomes of slices over an edge of the window."""

    keep = "keep"
    start = "start"
    clip = "clip"


class Args(StrEnum):
    """Which arguments of events an engine has."""

    all = "all"
    essential = "essential"
    none = "none"


ArgsOption = Annotated[
    Args, typer.Option("--args", help="Which arguments of events the engine has; with fewer it loads sooner.")
]


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `chosen`; it gets what they mean as its parameter ``selection``."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(chosen, eval_str=True).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        told = {name: given.pop(name) for name in options}
        command(**given, selection=chosen(**told))

    parameters = [one for one in own.parameters.values() if one.name != "selection"] + list(options.values())
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    shown = cast("Any", run)
    shown.__signature__ = own.replace(parameters=named)
    shown.__annotations__ = {one.name: one.annotation for one in named}
    return run


def chosen(  # noqa: PLR0913 - a parameter is an option
    *,
    steps: Annotated[
        list[str] | None, typer.Option(metavar="N,…", help="Numbers of ProfilerSteps, also 3-7: the time they take.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="START..END",
            help="A span of time in ns, or with a unit (1.5ms..2s), from the trace's start on; with @ before a number "
            "(@5..@9) in the trace's own clock. Either side may be empty.",
        ),
    ] = None,
    from_name: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Begin with the first slice of this name.")
    ] = None,
    to_name: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="End with the first slice of this name after that.")
    ] = None,
    streams: Annotated[
        list[str] | None, typer.Option(metavar="DEVICE/STREAM,…", help="As the trace lists them: 0/7.")
    ] = None,
    devices: Annotated[list[str] | None, typer.Option(metavar="N,…", help="What runs on these devices.")] = None,
    ranks: Annotated[list[str] | None, typer.Option(metavar="N,…", help="Ranks of a merged trace.")] = None,
    threads: Annotated[
        list[str] | None, typer.Option(metavar="TID,…", help="Tids, pid/tid, or a name; may be given again.")
    ] = None,
    processes: Annotated[
        list[str] | None, typer.Option(metavar="PID,…", help="Pids, or a name; may be given again.")
    ] = None,
    categories: Annotated[
        list[str] | None, typer.Option(metavar="NAME,…", help="kernel, cpu_op, …; an empty one for events without.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Names of events, with * and ?, or re: and a regex; may be given again."),
    ] = None,
    phases: Annotated[list[str] | None, typer.Option(metavar="PH,…", help="X, i, C, …")] = None,
    min_dur: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only slices that last so long: in ns, or 5us, 1.5ms, 2s.")
    ] = None,
    exclude_categories: Annotated[
        list[str] | None, typer.Option(metavar="NAME,…", help="Leave these out, whatever they belong to.")
    ] = None,
    exclude_names: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Likewise; may be given again.")
    ] = None,
    straddle: Annotated[
        Straddle | None,
        typer.Option(
            help="Slices over an edge of the window: all (keep, as without it), those that begin in it, or cut to it."
        ),
    ] = None,
    no_metadata: Annotated[bool, typer.Option("--no-metadata", help="Without names of processes and threads.")] = False,
    no_flows: Annotated[bool, typer.Option("--no-flows", help="Without the arrows between kept slices.")] = False,
    no_launches: Annotated[
        bool, typer.Option("--no-launches", help="Without the launches and ops of kept kernels.")
    ] = False,
    no_kernels: Annotated[bool, typer.Option("--no-kernels", help="Without what kept launches started.")] = False,
    no_annotations: Annotated[
        bool, typer.Option("--no-annotations", help="Without the annotations that last longer than a window.")
    ] = False,
    as_given: Annotated[
        str | None, typer.Option("--selection", metavar="JSON", help="All of it as the API takes it, or @FILE.")
    ] = None,
) -> Json | None:
    """The selection that the options mean, as the API takes it; None without any. Raises `typer.BadParameter`."""
    left_out = {
        "metadata": no_metadata, "flows": no_flows, "launches": no_launches, "kernels": no_kernels,
        "annotations": no_annotations,
    }  # fmt: skip
    told: dict[str, Any] = {
        "window": _window(window, from_name, to_name),
        "steps": _integers("--steps", steps),
        "ranks": _integers("--ranks", ranks),
        "devices": _integers("--devices", devices),
        "streams": _words(streams),
        "threads": _keys(threads),
        "processes": _keys(processes),
        "categories": _words(categories),
        "names": names or None,
        "phases": _words(phases),
        "min_dur_ns": None if min_dur is None else _time("--min-dur", min_dur),
        "exclude": _given({"categories": _words(exclude_categories), "names": exclude_names or None}),
        "straddle": straddle and straddle.value,
        "closure": {name: False for name, off in left_out.items() if off} or None,
    }
    parts = _given(told)
    if as_given is None:
        return _understood(parts, "the selection") if parts else None
    if parts:
        raise typer.BadParameter(
            "it is all of the selection; no other option of it goes with it", param_hint="--selection"
        )
    return _understood(_text(as_given), "--selection")


def as_text(selection: Json | None) -> str:
    """A selection on one line; nothing for all of a trace."""
    return json.dumps(selection, separators=(",", ":"), ensure_ascii=False) if selection else ""


def _understood(value: str | Json, hint: str) -> Json | None:
    """The selection without what is as it is anyway; None if that is all."""
    from service.trace.errors import BadSelection  # noqa: PLC0415 - it takes long to import, and most commands don't
    from service.trace.selection import Selection  # noqa: PLC0415

    try:
        return Selection.parsed(value).as_dict() or None
    except BadSelection as error:
        raise typer.BadParameter(error.detail, param_hint=hint) from error


def _text(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{given[1:]} can't be read: {error}", param_hint="--selection") from error


def _given(parts: dict[str, Any]) -> Json | None:
    return {name: value for name, value in parts.items() if value is not None} or None


def _window(span: str | None, from_name: str | None, to_name: str | None) -> Json | None:
    told: dict[str, Any] = {"from": from_name, "to": to_name}
    if span is not None:
        start, dots, end = (side.strip() for side in span.partition(".."))
        sides = [side for side in (start, end) if side]
        if not dots or not sides:
            raise typer.BadParameter(f"{span!r} is no START..END", param_hint="--window")
        if len({side.startswith("@") for side in sides}) > 1:
            raise typer.BadParameter("put an @ before both sides, or before neither", param_hint="--window")
        edges = [_time("--window", side.removeprefix("@")) if side else None for side in (start, end)]
        if edges[0] is not None and edges[1] is not None and edges[1] <= edges[0]:
            raise typer.BadParameter(f"{span!r} does not end after its start", param_hint="--window")
        told |= {"start_ns": edges[0], "end_ns": edges[1], "relative": None if sides[0].startswith("@") else True}
    return _given(told)


def _time(option: str, text: str) -> int:
    try:
        return nanoseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def numbers(option: str, text: str) -> Iterator[int]:
    """The integers of ``3,4`` and ``5-7``; raises `typer.BadParameter`."""
    for one in text.split(","):
        found = _RANGE.fullmatch(one.strip())
        if not found:
            raise typer.BadParameter(f"{one!r} is no number, nor a range like 3-7", param_hint=option)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise typer.BadParameter(f"{one!r} ends before it starts", param_hint=option)
        if last - first >= _VALUES_MAX:
            raise typer.BadParameter(f"{one!r} are more than {_VALUES_MAX}", param_hint=option)
        yield from range(first, last + 1)


def _integers(option: str, texts: list[str] | None) -> list[int] | None:
    return _each_once(one for text in texts or () for one in numbers(option, text))


def _words(texts: list[str] | None) -> list[str] | None:
    return _each_once(one.strip() for text in texts or () for one in text.split(","))


def _keys(texts: list[str] | None) -> list[int | str] | None:
    """Ids, several of them with commas between, or a name, which may have commas of its own."""
    each = (one for text in texts or () for one in (text.split(",") if _NUMBERS.fullmatch(text) else [text]))
    return _each_once(int(one) if _NUMBER.fullmatch(one) else one for one in each)


def _each_once(values: Iterator[Any]) -> list[Any] | None:
    return list(dict.fromkeys(values)) or None

"""The event of a slice, with all its arguments, whatever arguments an engine has."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.rendering.fuchsia.arguments import PREFIX
from service.rendering.sanitizing import sanitized, suspects
from service.rendering.shown_slices import ShownSlices
from service.rendering.text import PackedTexts
from service.rendering.view import EngineSlice
from service.store.folder import EVENTS
from service.store.parts import Parts
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

_COLUMNS = ("position", "name", "ts_ns", "dur_ns", "args")
_BLANKS = re.compile(r"[ \t\n\r]*")
_CONTROL = re.compile(r"[\0-\x1f]")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class Argument:
    """An argument, as in the engine's table `args`.

    Attributes:
        key: its key in that table.
        value: its value; the text of a list or an object, and of a number that the engine can't hold.
    """

    key: str
    value: str | int | float | bool


@dataclass(frozen=True)
class SliceDetails:
    """The event of a slice.

    Attributes:
        position: its place in the trace's file.
        name: its name; None without one.
        ts_ns: its start on the trace's own clock.
        dur_ns: its duration; None for an instant.
        args: its arguments, in the order of the file.
    """

    position: int
    name: str | None
    ts_ns: int
    dur_ns: int | None
    args: list[Argument]


def slice_details(
    columns: Path, summary: Summary, selection: Selection | None, chosen: SliceReference | EngineSlice, alike: int = 1
) -> SliceDetails:
    """Return the event of a slice.

    Args:
        columns: the folder of the trace's columns.
        summary: the trace's summary from the catalog.
        selection: the part that the slice must be in; None for the whole trace.
        chosen: the slice, by its position or by its time and name; or its properties in the engine.
        alike: number of the engine's slices that share these properties.

    Raises:
        SelectionError: the selection is empty.
        UnknownSlice: the slice is not in the trace, or not in the selection, or consists of two events.
        AmbiguousSlice: the reference matches several slices.
        ExportFailed: the columns can't be read.
    """
    with closing(Parts(columns / EVENTS)) as parts:
        slices = ShownSlices(parts, summary, selection)
        row = slices.row_of(chosen) if isinstance(chosen, SliceReference) else slices.row_of_engine_slice(chosen, alike)
        event = slices.event(row, _COLUMNS)
    return SliceDetails(**event | {"args": arguments(event["args"] or "{}")})


def arguments(text: str) -> list[Argument]:
    """Return the arguments of an event as an engine shows them that has them all. Of equal keys, the last one holds.

    Args:
        text: the value of `args` in the event, as JSON.
    """
    packed = PackedTexts.of([text.encode()])
    if len(suspects(packed.values, packed.starts, np.ones(1, np.bool_))):
        text = sanitized(text, in_json=False)
    values = {
        PREFIX.decode() + key: _CONTROL.sub(" ", source) if isinstance(value, dict | list) else value
        for key, value, source in _members(text)
        if value is not None
    }
    return [Argument(*member) for member in values.items()]


def _members(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each member of a JSON object, its value and the text of the value."""
    at = _after_blanks(text, 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _after_blanks(text, _after_blanks(text, at) + 1)  # after the colon
        value, end = _DECODER.raw_decode(text, at)
        yield key, value, text[at:end]
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at

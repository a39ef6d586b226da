"""The annotations of track events and the data of GPU stages as the arguments that Kineto writes."""

import math
from collections.abc import Iterable
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from service.formats.pftrace.messages import Annotation
from service.formats.pftrace.sequences import Sequence
from service.trace.health import Health

KEPT_MAX = 4096
"""Number of parsed annotations that a sequence keeps: most repeat."""

_BRACKETS_MAX = 100  # protobuf nests as deep
_KEPT_SIZE = 200  # bytes of an annotation that is kept
_KINETO = {
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "shared memory",
}
"""Kineto's names of the data of GPU stages that have another one."""
_SIZES = (("grid", "grid_size"), ("block", "workgroup_size"))


class Arguments:
    """Converts arguments to values of JSON.

    Args:
        health: notes on texts that are not UTF-8 and on values that have no JSON.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self.offset = 0

    def text(self, value: bytes) -> str:
        """Return a text; bytes that are not UTF-8 are replaced, with a note."""
        try:
            return value.decode()
        except UnicodeDecodeError:
            replaced = value.decode(errors="replace")
            self._health.add("invalid_utf8", offset=self.offset, text=replaced)
            return replaced

    def of_event(self, annotations: Iterable[bytes], sequence: Sequence) -> dict[str, Any]:
        """Return the arguments of a track event, without damaged ones."""
        kept, arguments = sequence.arguments, {}
        for content in annotations:
            parsed = kept.get(content)
            if parsed is None:
                try:
                    parsed = self._annotation(Annotation.FromString(content), sequence)
                except DecodeError as error:
                    self._health.add("unread_arguments", offset=self.offset, text=f"{error}")
                    continue
                if len(content) <= _KEPT_SIZE:
                    if len(kept) >= KEPT_MAX:
                        kept.clear()
                    kept[content] = parsed
            arguments[parsed[0]] = parsed[1]
        return arguments

    def of_stage(self, stage: Any, sequence: Sequence) -> dict[str, Any]:
        """Return the arguments of a GPU stage."""
        arguments: dict[str, Any] = {}
        for extra in stage.extra_data:
            name = self.text(extra.name)
            arguments[_KINETO.get(name, name)] = _number(self.text(extra.value))
        if stage.HasField("launch"):
            launch = stage.launch
            for argument in launch.args:
                name = sequence.launch_arguments.get(argument.name_iid) or self.text(argument.name)
                arguments[_KINETO.get(name, name)] = self._launch_value(argument)
            for name, field in _SIZES:
                size = getattr(launch, field)
                arguments[name] = [size.x, size.y, size.z]
        return arguments

    def _launch_value(self, argument: Any) -> Any:
        for field in ("int_value", "uint_value"):
            if argument.HasField(field):
                return getattr(argument, field)
        if argument.HasField("double_value"):
            return _float(argument.double_value)
        return self.text(argument.string_value)

    def _annotation(self, annotation: Any, sequence: Sequence) -> tuple[str, Any]:
        """Return the name and the value of an annotation. PyTorch writes an empty list as one without a value."""
        name, value = "", None
        entries: dict[str, Any] = {}
        items: list[Any] = []
        for field, found in annotation.ListFields():
            match field.name:
                case "name":
                    name = self.text(found)
                case "name_iid":
                    name = sequence.argument_names.get(found, f"unknown {found}")
                case "bool_value" | "uint_value" | "int_value":
                    value = found
                case "double_value":
                    value = _float(found)
                case "string_value":
                    value = self.text(found)
                case "string_value_iid":
                    value = sequence.argument_texts.get(found)
                case "pointer_value":
                    value = hex(found)
                case "json_value":
                    value = self._json(found)
                case "dict_entries":
                    entries = dict(self._annotation(entry, sequence) for entry in found)
                case "array_values":
                    items = [self._annotation(item, sequence)[1] for item in found]
                case "proto_value":
                    value = None
                    self._health.add("unread_arguments", offset=self.offset, text=name)
                    return name, value
        return name, (entries or items) if value is None else value

    def _json(self, text: bytes) -> Any:
        """Return the value of a JSON text; a text that is none, or too deep for the readers of events, stays a text."""
        if text.count(b"[") + text.count(b"{") > _BRACKETS_MAX:
            return self.text(text)
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return self.text(text)


def _number(text: str) -> int | str:
    """Return the integer that a text stands for, or the text."""
    is_number = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19
    return int(text) if is_number and str(int(text)) == text else text


def _float(value: float) -> float | str:
    """Return a number, or the name of one that JSON lacks."""
    return value if math.isfinite(value) else str(value)

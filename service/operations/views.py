"""Views of traces.

A view is what an engine loads: a trace or a selection of it, with all, some or no arguments of the events.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import get_args

import orjson

from service.trace.errors import BadSelection
from service.trace.selection import Selection
from service.trace.selection_fields import Args


@dataclass(frozen=True)
class View:
    """The content of an engine. The string form of a view identifies the engine, and is part of the URL of its UI."""

    trace_id: str
    selection: Selection | None = None
    args: Args = "all"

    def __str__(self) -> str:
        chosen: dict[str, object] = {} if self.args == "all" else {"args": self.args}
        if self.selection is not None:
            chosen["selection"] = self.selection.as_dict()
        if not chosen:
            return self.trace_id
        text = orjson.dumps(chosen, option=orjson.OPT_SORT_KEYS)
        return f"{self.trace_id}~{base64.urlsafe_b64encode(text).decode().rstrip('=')}"

    @classmethod
    def parsed(cls, text: str) -> "View":
        """Parse the string form of a view; raises `BadSelection`."""
        trace_id, _, code = text.partition("~")
        if not code:
            return cls(trace_id)
        try:
            chosen = orjson.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
            args, selection = chosen.get("args", "all"), chosen.get("selection")
        except (ValueError, binascii.Error, AttributeError) as error:
            raise BadSelection(f"{code[:100]!r} does not encode a selection.") from error
        if args not in get_args(Args):
            raise BadSelection(f"{code[:100]!r} encodes an unknown value of `args`.")
        return cls(trace_id, None if selection is None else Selection.parsed(selection), args)

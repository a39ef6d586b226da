"""What an engine is asked about: a trace or a selection of it, with all arguments of its events or fewer."""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import orjson
from fastapi import Depends, Query

from service.http.selection_parameters import Chosen
from service.trace.errors import BadSelection
from service.trace.selection import Args, Selection


@dataclass(frozen=True)
class View:
    """What an engine is on; as a string it stands in the address of a UI, and holds all of that."""

    trace_id: str
    selection: Selection | None = None
    args: Args = "all"

    def __str__(self) -> str:
        chosen: dict[str, Any] = {} if self.args == "all" else {"args": self.args}
        if self.selection is not None:
            chosen["selection"] = self.selection.as_dict()
        if not chosen:
            return self.trace_id
        text = orjson.dumps(chosen, option=orjson.OPT_SORT_KEYS)
        return f"{self.trace_id}~{base64.urlsafe_b64encode(text).decode().rstrip('=')}"

    @classmethod
    def parsed(cls, text: str) -> "View":
        """The view that a string stands for; raises `BadSelection`."""
        trace_id, _, code = text.partition("~")
        if not code:
            return cls(trace_id)
        try:
            chosen = orjson.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
            args, selection = chosen.get("args", "all"), chosen.get("selection")
        except (ValueError, binascii.Error, AttributeError) as error:
            raise BadSelection(f"{code[:100]!r} stands for no selection.") from error
        if args not in get_args(Args):
            raise BadSelection(f"{code[:100]!r} asks for no known arguments.")
        return cls(trace_id, None if selection is None else Selection.parsed(selection), args)


def chosen_view(
    trace_id: str,
    selection: Chosen,
    args: Annotated[
        Args,
        Query(description="which arguments of events the engine has; `essential` are correlation, device, stream"
                          " and bytes, and it loads sooner"),
    ] = "all",
) -> View:  # fmt: skip
    """The view that an address means; raises `BadSelection`."""
    return View(trace_id, selection, args)


Viewed = Annotated[View, Depends(chosen_view)]
"""What the request is about."""

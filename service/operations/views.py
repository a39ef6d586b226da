"""Views of traces.

A view is what an engine loads: a trace or a selection of it, with all, some or no arguments of the events; or the
original of a Perfetto trace, which has packets that the columns lack.
"""

import base64
import binascii
from dataclasses import dataclass, replace
from typing import get_args

import orjson

from service.store.catalog import Trace
from service.trace.errors import BadSelection, SourceUnavailable
from service.trace.selection import Selection
from service.trace.selection_fields import Args, ViewSource

_PERFETTO = "pftrace"
"""The format whose originals engines load; a file may also be compressed."""


def sources_of(trace: Trace) -> tuple[ViewSource, ...]:
    """Return the sources from which engines load a trace; the first is the default.

    A Perfetto trace without events has only packets that trace_processor reads.
    """
    if not trace.has_original or not _is_perfetto(trace):
        return ("columns",)
    return ("columns", "original") if trace.summary_or_empty.kept_events else ("original",)


def _is_perfetto(trace: Trace) -> bool:
    return (trace.summary_or_empty.format or "").partition(".")[0] == _PERFETTO


@dataclass(frozen=True)
class View:
    """The content of an engine. The string form of a view identifies the engine, and is part of the URL of its UI.

    Attributes:
        trace_id: the id of the trace.
        selection: the selected part; None for the whole trace.
        args: the arguments that events keep.
        source: what the engine loads; None for the default of the trace.
    """

    trace_id: str
    selection: Selection | None = None
    args: Args = "all"
    source: ViewSource | None = None

    def __str__(self) -> str:
        chosen: dict[str, object] = {} if self.args == "all" else {"args": self.args}
        if self.selection is not None:
            chosen["selection"] = self.selection.as_dict()
        if self.source == "original":
            chosen["source"] = self.source
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
            args, selection, source = chosen.get("args", "all"), chosen.get("selection"), chosen.get("source")
        except (ValueError, binascii.Error, AttributeError) as error:
            raise BadSelection(f"{code[:100]!r} does not encode a selection.") from error
        if args not in get_args(Args):
            raise BadSelection(f"{code[:100]!r} encodes an unknown value of `args`.")
        if source not in (None, *get_args(ViewSource)):
            raise BadSelection(f"{code[:100]!r} encodes an unknown value of `source`.")
        return cls(trace_id, None if selection is None else Selection.parsed(selection), args, source)

    def resolved(self, trace: Trace) -> "View":
        """Return the view with the source that it has on its trace."""
        return replace(self, source=self.source or sources_of(trace)[0])

    def check(self, trace: Trace) -> None:
        """Check that an engine can load the view.

        Args:
            trace: the trace of the view, which is ready.

        Raises:
            SourceUnavailable: the trace can't be loaded from the source, or the original in this way.
        """
        sources = sources_of(trace)
        source = self.source or sources[0]
        reason = None
        if source not in sources:
            reason = _reason_against_original(trace) if source == "original" else "the trace has no events"
        elif source == "original" and (self.selection is not None or self.args != "all"):
            reason = "a selection and `args` choose from events in columns, and the original is loaded as it is"
            if not trace.summary_or_empty.kept_events:
                reason = f"the trace has no events: {reason}"
        if reason:
            raise SourceUnavailable(f"The engine can't load the {source}: {reason}.", sources=sources)


def _reason_against_original(trace: Trace) -> str:
    if not trace.sha256:
        return "the trace was made here, and has no file"
    if not _is_perfetto(trace):
        return (
            f"its file has the format {trace.summary_or_empty.format}, and only {_PERFETTO} is loaded without columns"
        )
    return "the file is not kept any more"

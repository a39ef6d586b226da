"""A trace, or a selection of it, as Perfetto's protobuf that users open elsewhere, and that is read back without loss.

Times are those of the trace's own clock, since 1970 if the trace tells its zero. Names of processes and threads, and
the lanes of slices that overlap without nesting, are those that an engine loads.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from service.cutting.cut import cut_of, part_envelope
from service.cutting.part_steps import PartSteps
from service.formats.pftrace.clocks import TIME_MAX
from service.formats.pftrace.packets import PACKET_MAX
from service.formats.pftrace.written import COUNTS, MARK, VERSION
from service.rendering.document import by_whole_times, small_table
from service.rendering.pftrace.events import PacketWriter
from service.rendering.pftrace.packets import events_as_json, members, state_cleared
from service.rendering.pftrace.redaction import redacted_summary, redacted_table
from service.rendering.tracks import TrackAssigner
from service.store.export import EVENT_SEPARATOR, envelope, event_texts
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.streaming.schema import SCHEMA
from service.trace.errors import ExportFailed, FormatUnavailable
from service.trace.selection import Selection
from service.trace.summary import Summary
from service.trace.text import Members, read, written

AROUND_MAX = PACKET_MAX - (1 << 20)
"""Largest size in bytes of the members of the document around the events, which are in one packet."""


def pftrace(
    columns: Path, summary: Summary, *, selection: Selection | None = None, source: str = "", redact: bool = False
) -> Iterator[bytes]:
    """Yield the packets of a trace, in pieces of a few MB.

    Args:
        columns: folder of the trace's columns.
        summary: the trace's summary, as in the catalog.
        selection: selection of the events to keep; None for all events.
        source: identity of the trace, for a selection; see `Trace.identity`.
        redact: whether to hide secrets.

    Raises:
        SelectionError: the selection is invalid or matches no event; raised before the first piece.
        FormatUnavailable: the document around the events is larger than `AROUND_MAX`; likewise.
        ExportFailed: the columns can't be read.
        DiskFull: the disk had no room.
    """
    summary = whole_summary(summary, columns)
    text = envelope(columns, redact=redact)
    with closing(Parts(columns / EVENTS)) as parts, event_texts(columns, redact=redact) as texts:
        if selection is None:
            tables = (part.table for part in parts.read(SCHEMA.names))
        else:
            cuts = cut_of(parts, selection, summary)
            steps = PartSteps.of_trace(columns, summary).of_selection(selection, cuts.time(0))
            text = part_envelope(text, selection, source, summary, steps)
            tables = (table.select(SCHEMA.names) for _, table in cuts.tables())
        around = _around(text)
        zero_ns = _zero(parts, summary)
        writer = PacketWriter(
            TrackAssigner(redacted_summary(summary) if redact else summary, parts.work_tracks or ()), zero_ns
        )
        facts = {"version": VERSION, "zero_ns": zero_ns, "is_array": around is None}
        yield state_cleared() + members([(MARK, json.dumps(facts)), *(around or ())])
        events = 0
        for table in by_whole_times(tables):
            events += len(table)
            packets, copied = writer.write(redacted_table(table) if redact else table)
            yield packets
            for block in texts(copied) if len(copied) else ():
                yield from map(events_as_json, [block] if len(block) < AROUND_MAX else block.split(EVENT_SEPARATOR))
        untimed, metadata = writer.untimed, writer.metadata
        counts = {
            "events": events,
            "copied": writer.copies + metadata + untimed,
            "metadata": metadata,
            "untimed": untimed,
        }
        yield members([(COUNTS, json.dumps(counts))])


def _around(envelope: bytes) -> list[tuple[str, str]] | None:
    """Return the name and the JSON of each member of an envelope but the events; None if it is their array.

    Raises:
        FormatUnavailable: the members are too large.
        ExportFailed: the envelope is not JSON.
    """
    try:
        document = read(envelope.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ExportFailed(f"The trace's envelope can't be read as JSON: {error}.") from error
    if not isinstance(document, Members):
        return None
    around = [(name, written(value)) for name, value in document if name != "traceEvents"]
    size = sum(len(name) + len(text) for name, text in around)
    if size > AROUND_MAX:
        raise FormatUnavailable(
            f"The document has {size} bytes around its events, and a Perfetto trace holds at most {AROUND_MAX}:"
            " download json or json.gz.",
            formats=("json", "json.gz"),
        )
    return around


def _zero(parts: Parts, summary: Summary) -> int:
    """Return the time of packets at which the trace's own clock is 0: since 1970, if the trace tells it.

    Packets have no negative times, so that the zero is later if the trace has some.
    """
    base = summary.base_ns or 0
    spans = [span for index in range(len(parts)) if (span := parts.span(index, "ts_ns"))]
    first = min((span[0] for span in spans), default=0)
    return max(base if 0 <= base < TIME_MAX else 0, min(-first, TIME_MAX - 1))


def prepare() -> None:
    """Compile the machine code, or load it from the cache, before the first trace needs it."""
    PacketWriter(TrackAssigner(Summary()), 0).write(small_table())

"""The reader of Perfetto's protobuf traces."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.pftrace.events import EventWriter
from service.formats.pftrace.packets import Packet, packets
from service.formats.pftrace.slices import OPEN, Ints
from service.formats.pftrace.written import Document, parsed
from service.streaming.scan.events import ELEMENT
from service.streaming.scan.reader import Reader
from service.streaming.schema import SCHEMA
from service.trace.errors import BadCompression, IngestError, NotATrace, Truncated
from service.trace.health import Health

_FRAME = 1 << 18  # characters of events that become columns at once
_ENDS: dict[str, type[IngestError]] = {"cut": Truncated, "bad_compression": BadCompression}


class PerfettoReader:
    """The `TraceReader` of Perfetto's protobuf traces.

    It reads the packets once, and spools their events; the durations of slices are known only after the last packet.

    Args:
        chunks: the decompressed file, in order.
        scratch: an empty folder for the spooled events.
    """

    def __init__(self, chunks: Iterable[bytes], scratch: Path) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._is_decompressed = True
        self._chunks = self._watched(chunks)
        self._spool, self._marks, self._copies = (scratch / name for name in ("events.arrow", "marks", "copies"))
        self._columns = Reader()
        self._envelope = ""
        self._members: dict[str, Any] = {"schemaVersion": 1}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events in the order of the file, then flows and the names of processes and threads.

        A trace that has only packets of other kinds, which trace_processor can read, has no events.

        Raises:
            Truncated, BadCompression: the file ends before its first event or such packet.
            NotATrace: the file has neither.
        """
        writer = EventWriter(self.health, self._marks, self._copies)
        try:
            self._spool_events(writer)
            durations, unmatched = writer.marks.durations()
            self._note_slices(durations, unmatched)
            yield from self._timed(durations, writer.last)
            further = [self._read(writer.flows.events(writer.tracks.places))]
            if writer.document.is_written:
                further.append(self._copied(writer.document))
                self._envelope = writer.document.envelope()
            elif self.kept:
                further.append(self._read(writer.tracks.name_events()))
            for batch in chain(*further):
                self.kept += len(batch)
                yield batch
            if (base := writer.clocks.base_ns) is not None:
                self._members["baseTimeNanoseconds"] = base
        finally:
            writer.marks.close()
            writer.document.close()
            self._spool.unlink(missing_ok=True)

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document around the events."""
        if self._envelope:
            members = parsed(self._envelope)
            return self._envelope.encode(errors="replace"), members if isinstance(members, dict) else {}
        return json.dumps(self._members | {"traceEvents": []}).encode(), self._members

    def _copied(self, document: Document) -> Iterator[pa.RecordBatch]:
        """Yield the events that the trace has as JSON; what is no event is left out, with a note."""
        for offset, text in document.events():
            found = self._columns.read(text, 0, ELEMENT, last=False)
            self.refused += found.refused
            if found.at < len(text):
                self.refused += 1
                self.health.add("unreadable_event", offset=offset, text="events as JSON that end early")
            self.health.join(found.health)
            yield from found.batches

    def _spool_events(self, writer: EventWriter) -> None:
        """Write the events of all packets to the spool; raises an error if the trace has nothing to show."""
        last: Packet | None = None
        with pa.OSFile(str(self._spool), "wb") as file, _stream(file) as stream:
            for packet in packets(self._chunks):
                last = packet
                writer.add(packet)
                self.refused = writer.refused
                if writer.size >= _FRAME:
                    self._write(stream, writer.take())
            self._write(stream, writer.take())
        writer.unread.note(self.health)
        has_events = self.kept or writer.document.has_events
        is_damaged = last is not None and last.damage == "damaged_packets"
        is_loadable = writer.unread.has_data and self._is_decompressed and not is_damaged
        if not has_events and not is_loadable:  # trace_processor reads a trace that is cut, but not a damaged one
            raise self._no_events(last)

    def _watched(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from chunks
        except (BadCompression, Truncated):
            self._is_decompressed = False
            raise

    def _write(self, stream: pa.RecordBatchStreamWriter, texts: list[str]) -> None:
        for batch in self._batches(texts):
            self.kept += len(batch)
            stream.write_batch(batch)

    def _no_events(self, last: Packet | None) -> IngestError:
        if last and last.damage in _ENDS:
            return _ENDS[last.damage](last.reason, offset=last.offset)
        if last and last.damage:
            return NotATrace(f"The Perfetto trace is damaged at byte {last.offset}: {last.reason}.", offset=last.offset)
        return NotATrace(
            "The Perfetto trace has no track events, GPU stages or counters, and no packets of other kinds with data."
        )

    def _note_slices(self, durations: Ints, unmatched: int) -> None:
        if unmatched:
            self.health.add("unmatched_ends", count=unmatched)
            self.refused += unmatched
        if still_open := int((durations == OPEN).sum()):
            self.health.add("open_ranges", count=still_open)

    def _timed(self, durations: Ints, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the spooled events with their durations; slices without an end last until the last event."""
        at = 0
        with pa.memory_map(str(self._spool)) as file:
            for batch in pa.ipc.open_stream(file):
                untimed = pc.and_(pc.is_null(batch["dur_ns"]), pc.equal(batch["ph"].cast(pa.string()), "X"))
                places = np.flatnonzero(untimed.to_numpy(zero_copy_only=False))
                found = durations[at : at + len(places)]
                at += len(places)
                known = batch["dur_ns"].fill_null(0).to_numpy().copy()
                known[places] = np.where(found == OPEN, last - batch["ts_ns"].fill_null(0).to_numpy()[places], found)
                missing = pc.and_(pc.is_null(batch["dur_ns"]), pc.invert(untimed)).to_numpy(zero_copy_only=False)
                digits = pa.array(np.full(len(batch), 3, np.int8), mask=missing)
                timed = _replaced(batch, "dur_ns", pa.array(known, mask=missing))
                yield _replaced(timed, "dur_digits", digits)

    def _read(self, events: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield events, given as JSON, as columns."""
        texts, size = list[str](), 0
        for event in events:
            texts.append(event)
            size += len(event)
            if size >= _FRAME:
                yield from self._batches(texts)
                texts, size = [], 0
        yield from self._batches(texts)

    def _batches(self, texts: list[str]) -> Iterator[pa.RecordBatch]:
        """Return events, given as JSON, as columns."""
        if not texts:
            return
        frame = ",".join(texts).encode()
        found = self._columns.read(frame, 0, ELEMENT, last=False)
        if found.kept != len(texts):
            raise RuntimeError(f"{len(texts)} events became {found.kept}")
        yield from found.batches


def _stream(file: pa.NativeFile) -> pa.RecordBatchStreamWriter:
    return pa.ipc.new_stream(file, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))


def _replaced(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)

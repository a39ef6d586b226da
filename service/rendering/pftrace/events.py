"""Writing of a trace's events as packets."""

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from service.formats.pftrace.clocks import TIME_MAX
from service.formats.pftrace.messages import COUNTER, Packet, framed, tag, varint
from service.formats.pftrace.written import EXACT, SHOWN
from service.rendering.lanes import FLOW, OTHER, SLICE
from service.rendering.pftrace.annotations import AnnotationWriter
from service.rendering.pftrace.packets import NAMES_MAX, TrackPackets, interned
from service.rendering.pftrace.packing import Events, Fields, packets_of
from service.rendering.pftrace.restoring import BINDS, rest_kinds, restored
from service.rendering.phases import PHASES, shown_phases
from service.rendering.placement import LanePlacer
from service.rendering.sanitizing import counter_args
from service.rendering.text import PackedTexts
from service.rendering.tracks import TrackAssigner
from service.store.parts import METADATA, Flags, Ints, Part
from service.trace.summary import FLOW_PHASES

_CODES = {phase: code for code, phase in enumerate(PHASES)}
_X, _BEGIN, _END, _C = (_CODES[phase] for phase in "XBEC")
_FLOWS = [_CODES[phase] for phase in FLOW_PHASES]
_TEXT_IDS = 1 << 61  # first number that is assigned to an id that is not an integer


class WordTable:
    """The words of a column as fields of a track event.

    The first `NAMES_MAX` words get a number, and are written once.

    Args:
        numbered: the bytes before a word's number.
        named: the bytes before a word's size.
    """

    def __init__(self, numbered: bytes, named: bytes) -> None:
        self._numbered, self._named = numbered, named
        self._fields: dict[str, bytes] = {}
        self.words: list[bytes] = []

    def of(self, words: list[str]) -> PackedTexts:
        """Return the field of each word in order, followed by an empty one."""
        return PackedTexts.of([*map(self._field, words), b""])

    def _field(self, word: str) -> bytes:
        field = self._fields.get(word)
        if field is None:
            content = word.encode(errors="replace")
            if len(self.words) >= NAMES_MAX:
                return self._named + varint(len(content)) + content
            self.words.append(content)
            field = self._fields[word] = self._numbered + varint(len(self.words))
        return field


class PacketWriter:
    """Writes the events of a trace as packets.

    Args:
        assigner: assigns processes and threads to lanes.
        zero_ns: the time of packets at which the trace's own clock is 0.

    Attributes:
        untimed: number of events without a time, which are not shown.
        metadata: number of events that name processes and threads, which descriptions of tracks replace.
        copies: number of events that are shown, and need a copy as JSON.
    """

    def __init__(self, assigner: TrackAssigner, zero_ns: int) -> None:
        self._zero_ns = zero_ns
        self._placer = LanePlacer(assigner)
        self._tracks = TrackPackets()
        self._track_fields: list[bytes] = []
        self._names = WordTable(tag("TrackEvent", "name_iid"), tag("TrackEvent", "name"))
        self._categories = WordTable(tag("TrackEvent", "category_iids"), tag("TrackEvent", "categories"))
        self._annotations = AnnotationWriter()
        self._interned: dict[int, Counter[str]] = {EXACT: Counter(), SHOWN: Counter()}
        self._ids: dict[str, int] = {}
        self._part_count = 0
        self.untimed = self.metadata = self.copies = 0

    def write(self, table: pa.Table) -> tuple[bytes, pa.Table]:
        """Return the packets of a table's events, and the events that need a copy as JSON.

        Tables must be in order of time, with all events of a time in one table.
        """
        part = self._part(table.unify_dictionaries().combine_chunks())
        metadata, timed = part.which("ph", METADATA), part.has("ts_ns")
        self.metadata += int(metadata.sum())
        self.untimed += int((~metadata & ~timed).sum())
        shown = timed & ~metadata
        copied = ~shown
        packets = b""
        if shown.any():
            if not shown.all():
                part = self._part(part.table.filter(pa.array(shown)).combine_chunks())
            packets, exact = self._packets(part)
            copied[shown] = ~exact
            self.copies += int((~exact).sum())
        return packets, table.filter(pa.array(copied)) if copied.any() else table.slice(0, 0)

    def _part(self, table: pa.Table) -> Part:
        self._part_count += 1
        return Part(self._part_count, 0, table)

    def _packets(self, part: Part) -> tuple[bytes, Flags]:
        """Return the packets of events that have a time, and flags of those whose packets hold all of them."""
        phases = shown_phases(part)
        is_slice = phases == _X
        starts, ends, exact = self._times(part, is_slice)
        is_flow = np.isin(phases, _FLOWS)
        kinds = np.select([is_slice, is_flow], [SLICE, FLOW], OTHER)
        lanes, joined, _ = self._placer.place(part, starts, ends, kinds, np.isin(phases, [_BEGIN, _END]))
        annotations = self._annotations.write(PackedTexts.in_array(part.table["args"].combine_chunks()))
        rests = rest_kinds(part)
        ids, has_id = self._ids_of(part)
        joined &= (rests != BINDS) & (phases == _CODES["f"])
        exact &= annotations.exact & ~joined & restored(part, phases, rests, has_id)
        descriptions = self._described()
        categories, names = self._words(part)
        tracks = Fields(PackedTexts.of(self._track_fields), lanes)
        binds = joined | (rests == BINDS)
        content = packets_of(Events(phases, exact, starts, ends, ids, binds, categories, names, tracks, annotations))
        counters = self._counters(part, np.flatnonzero(phases == _C), starts, lanes)
        return b"".join((*self._new_words(exact), *descriptions, content, *counters)), exact

    def _times(self, part: Part, is_slice: Flags) -> tuple[Ints, Ints, Flags]:
        """Return the starts and ends of events on the clock of packets, and flags of those that the clock has."""
        first, last = -self._zero_ns, TIME_MAX - 1 - self._zero_ns
        durations = np.where(is_slice, part.ints("dur_ns"), 0)
        moved = np.clip(part.starts, first, last)
        starts = moved + self._zero_ns
        ends = starts + np.clip(durations, 0, TIME_MAX - 1 - starts)
        return starts, ends, (moved == part.starts) & (ends - starts == durations)

    def _described(self) -> list[bytes]:
        """Return the packets that describe new lanes."""
        descriptions = [*self._tracks.threads_of(self._placer.tracks[len(self._tracks.threads) :])]
        new = self._tracks.threads[len(self._track_fields) :]
        self._track_fields += [tag("TrackEvent", "track_uuid") + varint(uuid) for uuid in new]
        return descriptions

    def _words(self, part: Part) -> list[Fields]:
        """Return the fields of categories and of names."""
        fields = []
        for column, table in (("cat", self._categories), ("name", self._names)):
            codes, words = part.coded(column)
            fields.append(Fields(table.of(words), np.where(codes < 0, len(words), codes)))
        return fields

    def _new_words(self, exact: Flags) -> Iterator[bytes]:
        """Yield the packets with texts that are new to the sequences of some events."""
        tables = {
            "event_categories": self._categories.words,
            "event_names": self._names.words,
            "debug_annotation_names": self._annotations.keys,
        }
        for sequence, is_used in ((EXACT, exact.any()), (SHOWN, not exact.all())):
            known = self._interned[sequence]
            new = {field: texts[known[field] :] for field, texts in tables.items()}
            if is_used and any(new.values()):
                yield interned(sequence, **{f: [*enumerate(texts, known[f] + 1)] for f, texts in new.items()})
                self._interned[sequence] = Counter({field: len(texts) for field, texts in tables.items()})

    def _ids_of(self, part: Part) -> tuple[Ints, Flags]:
        """Return the ids of events as integers, and flags of the ids that are no other values."""
        codes, words = part.coded("id_text")
        numbers = np.array([*(self._ids.setdefault(word, _TEXT_IDS + len(self._ids)) for word in words), 0], np.int64)
        return np.where(codes < 0, part.ints("id"), numbers[codes]), part.has("id") & (part.ints("id") >= 0)

    def _counters(self, part: Part, rows: Ints, starts: Ints, lanes: Ints) -> Iterator[bytes]:
        """Yield the packets of counters: one for each number, on the track of its series."""
        codes, words = part.coded("name")
        for row in rows.tolist():
            text, *_ = counter_args(part.table["args"][row].as_py())
            name = words[codes[row]] if codes[row] >= 0 else ""
            for series, value in json.loads(text).items():
                shown = name if series == "value" else f"{name} {series}".strip()
                uuid, description = self._tracks.counter(self._placer.tracks[lanes[row]], shown)
                packet = Packet(timestamp=int(starts[row]), trusted_packet_sequence_id=SHOWN)
                packet.track_event.type, packet.track_event.track_uuid = COUNTER, uuid
                packet.track_event.double_counter_value = value
                yield description + framed(packet.SerializeToString())

"""Conversion of a trace's events to lines for the engine, with ids, lanes and times in the engine's range."""

import numpy as np
import pyarrow as pa

from service.rendering.flows import FlowMatcher
from service.rendering.lanes import FLOW, OTHER, SLICE
from service.rendering.lines import Lines
from service.rendering.placement import LanePlacer
from service.rendering.render_report import RenderReport
from service.rendering.sanitizing import counter_args, is_exact, plain, sanitized
from service.rendering.text import (
    COPIED,
    ESSENTIAL,
    ESSENTIAL_COLUMNS,
    LEFT_OUT,
    NO_ARGS,
    PackedTexts,
    TextCache,
    member,
)
from service.rendering.time_base import SPAN_MAX, engine_times
from service.rendering.tracks import TrackAssigner
from service.store.parts import METADATA, Flags, Ints, Part, Words, mixed
from service.trace.selection import ALWAYS
from service.trace.selection_fields import Args
from service.trace.summary import FLOW_PHASES
from service.trace.text import Members, Number, read, written

_ASYNC = ("b", "n", "e")
PHASES = ("X", "i", "I", "R", "B", "E", *_ASYNC, "C", *sorted(FLOW_PHASES))
"""The phases that the engine shows; all others except metadata become instants."""

_CODES = {phase: code for code, phase in enumerate(PHASES)}
_INSTANT = _CODES["i"]
_READ_KEYS = frozenset({"bp", "s", "scope", "id2", "bind_id", "flow_in", "flow_out"})
_NUMBER_KEYS = frozenset({"tts", "tdur"})  # the engine treats other values as the end of the document
_TEXT_IDS = 1 << 61  # first number that is assigned to an id that is not an integer

_JOINED_END = len(PHASES)
_PHASE_TEXTS = PackedTexts.of([*(phase.encode() for phase in PHASES), b'f","bp":"e'])


def shown_phases(part: Part) -> Ints:
    """Return the index in `PHASES` of the phase that is shown for each event."""
    own, words = part.coded("ph")
    phases: Ints = np.array([_CODES.get(word, _INSTANT) for word in (*words, "")], np.int64)[own]
    without_id = np.isin(phases, [_CODES[phase] for phase in _ASYNC]) & ~part.has("id") & ~part.has("id_text")
    phases[without_id] = _INSTANT
    return phases


class EventWriter:
    """Makes the lines of a trace's events.

    Args:
        assigner: assigns processes and threads to tracks.
        report: output: counts of the events.
        args: which arguments to keep.
    """

    def __init__(self, assigner: TrackAssigner, report: RenderReport, args: Args) -> None:
        self._report = report
        self._kept_args = args
        self._categories = TextCache(lambda word: member("cat")(plain(word)))
        self._names = TextCache(lambda word: member("name")(plain(word)))
        self._rests = TextCache(self._rest_text)
        self._placer = LanePlacer(assigner)
        self._pids = np.zeros(0, np.int64)
        self._tids = np.zeros(0, np.int64)
        self._ids: dict[str, int] = {}
        self._flows = FlowMatcher()
        self._kinds = Words()  # numbers of arrows' categories and names
        self._part_count = 0

    def lines(self, table: pa.Table) -> Lines:
        """Return the lines of a table's events, except metadata and untimed events. Tables must be in order of time."""
        part = self._part(table.unify_dictionaries().combine_chunks())
        metadata, timed = part.which("ph", METADATA), part.has("ts_ns")
        self._report.events += len(part)
        self._report.metadata += int(metadata.sum())
        self._report.untimed += int((~metadata & ~timed).sum())
        if not (kept := timed & ~metadata).all():
            part = self._part(part.table.filter(pa.array(kept)).combine_chunks())
        return self._lines(part)

    def _loose_ends(self, part: Part, ids: Ints, has_id: Flags) -> Flags:
        """Flag the ends of arrows that no earlier event begins. The engine would ignore these ends."""
        flows = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
        loose = np.zeros(len(part), np.bool_)
        if len(flows):
            kinds = (self._kinds.of(part, column)[flows] for column in ("cat", "name"))
            keys = mixed(ids[flows], has_id[flows], *kinds)
            loose[flows] = self._flows.loose(keys, part.which("ph", {"s"}.__contains__)[flows])
            self._report.loose_ends += int(loose.sum())
        return loose

    def _part(self, table: pa.Table) -> Part:
        self._part_count += 1
        return Part(self._part_count, 0, table)

    def _lines(self, part: Part) -> Lines:
        ids, has_id = self._ids_of(part)
        loose = self._loose_ends(part, ids, has_id)
        phases = self._phases(part, loose)
        is_slice = phases == _CODES["X"]
        starts, durations = self._times(part, is_slice)
        is_flow = np.isin(phases, [_CODES[phase] for phase in FLOW_PHASES])
        kinds = np.select([is_slice, is_flow], [SLICE, FLOW], OTHER)
        paired = np.isin(phases, [_CODES["B"], _CODES["E"]])
        lanes, joined = self._placer.place(part, starts, starts + durations, kinds, paired)
        self._number_new_lanes()
        always = np.ones(len(part), np.bool_)
        args = part.table["args"].combine_chunks()
        return Lines(
            [(_PHASE_TEXTS, _with_joined_ends(part, phases, joined)), *self._words(part)],
            np.stack([self._pids[lanes], self._tids[lanes], starts, durations, ids]),
            np.stack([always, always, always, is_slice, has_id]),
            args,
            self._modes(part, loose),
            self._counters(args, np.flatnonzero(phases == _CODES["C"])),
            np.stack([part.ints(column) for column in ESSENTIAL_COLUMNS]),
            np.stack([part.has(column) for column in ESSENTIAL_COLUMNS]),
        )

    def _words(self, part: Part) -> list[tuple[PackedTexts, Ints]]:
        """Return the texts of categories, names and other members, each with the index of each event's text."""
        texts = []
        for column, cache in (("cat", self._categories), ("name", self._names)):
            codes, words = part.coded(column)
            texts.append((cache.of(words), np.where(codes < 0, len(words), codes)))
        rest = part.table["rest"].combine_chunks().dictionary_encode()
        words = rest.dictionary.to_pylist()
        texts.append((self._rests.of(words), rest.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)))
        return texts

    def _phases(self, part: Part, loose: Flags) -> Ints:
        """Return the code of the phase that the engine shows for each event. Count all events but loose ends."""
        phases = shown_phases(part)
        own, words = part.coded("ph")
        report = self._report
        for code, count in zip(*np.unique(phases[~loose], return_counts=True), strict=True):
            report.phases[PHASES[code]] += int(count)
        changed = (phases == _INSTANT) & ~part.which("ph", {"i"}.__contains__)
        for code, count in zip(*np.unique(own[changed], return_counts=True), strict=True):
            report.as_instants[words[code] if code >= 0 else ""] += int(count)
        return phases

    def _times(self, part: Part, is_slice: Flags) -> tuple[Ints, Ints]:
        """Return the starts of events and the durations of slices in the engine, in ns. Count the changed ones."""
        report, starts, durations = self._report, part.starts, np.where(is_slice, part.ints("dur_ns"), 0)
        early, late = starts < report.base_ns, starts > min(report.base_ns + SPAN_MAX, ALWAYS[1])
        long, negative = durations > SPAN_MAX, durations < 0
        report.moved += int((early | late | long).sum())
        report.negative += int(negative.sum())
        return engine_times(starts, durations, report.base_ns)

    def _number_new_lanes(self) -> None:
        """Add the processes and threads of new lanes."""
        tracks = self._placer.tracks[len(self._pids) :]
        if tracks:
            self._pids = np.concatenate([self._pids, [track.pid for track in tracks]])
            self._tids = np.concatenate([self._tids, [track.tid for track in tracks]])

    def _ids_of(self, part: Part) -> tuple[Ints, Flags]:
        """Return the ids of events as integers, and flags of the events that have an id."""
        codes, words = part.coded("id_text")
        numbers = np.array([*map(self._id, words), 0], np.int64)[codes]
        return np.where(codes < 0, part.ints("id"), numbers), (codes >= 0) | part.has("id")

    def _id(self, text: str) -> int:
        return self._ids.setdefault(text, _TEXT_IDS + len(self._ids))

    def _modes(self, part: Part, loose: Flags) -> Ints:
        """Return the mode of each event; see `Lines`. Allocations keep all arguments, too."""
        modes = np.full(len(part), {"all": COPIED, "essential": ESSENTIAL, "none": NO_ARGS}[self._kept_args])
        if self._kept_args == "essential":
            modes[part.which("name", {"[memory]"}.__contains__)] = COPIED
        modes[loose] = LEFT_OUT
        return modes

    def _counters(self, args: pa.StringArray, rows: Ints) -> dict[int, str]:
        """Return the arguments of counters, which keep only their numbers, by row. Count these."""
        counters = {}
        for row in rows.tolist():
            counters[row], numbers, others = counter_args(args[row].as_py())
            self._report.numbers += numbers
            self._report.no_numbers += others
        return counters

    def _rest_text(self, text: str) -> str:
        """Return the members in ``rest`` that the engine reads, as text with a comma before each."""
        kept = Members(
            (key, value) for key, value in dict(read(text)).items()
            if key in _READ_KEYS or (key in _NUMBER_KEYS and isinstance(value, Number) and is_exact(value))
        )  # fmt: skip
        return f",{sanitized(written(kept))[1:-1]}" if kept else ""


def _with_joined_ends(part: Part, phases: Ints, joined: Flags) -> Ints:
    """Set `_JOINED_END` as the phase of joined ends of arrows without ``bp``, and return the phases.

    The engine then binds such an end to the slice that begins at the same time, not to the next slice.
    """
    ends = np.flatnonzero(joined & (phases == _CODES["f"]))
    has_binding = pa.compute.match_substring(part.table["rest"].take(ends), '"bp"').fill_null(False).to_numpy()
    phases[ends[~has_binding]] = _JOINED_END
    return phases

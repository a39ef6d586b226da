"""Events of a trace as the text that an engine is fed: with its own ids and lanes, sound times and harmless values."""

import numpy as np
import pyarrow as pa

from service.rendering.account import Rendered
from service.rendering.base import SPAN_MAX, engine_times
from service.rendering.flows import Flows
from service.rendering.lanes import FLOW, OTHER, SLICE, Lanes
from service.rendering.text import (
    COPIED,
    ESSENTIAL,
    ESSENTIAL_COLUMNS,
    LEFT_OUT,
    NO_ARGS,
    Texts,
    Vocabulary,
    lines_of,
    member,
)
from service.rendering.tracks import ShownTracks
from service.rendering.values import counters, harmless, is_kept, plain, suspects, tells
from service.store.parts import METADATA, Flags, Ints, Part, Tracks, Words, mixed
from service.trace.selection import ALWAYS
from service.trace.selection_fields import Args
from service.trace.summary import FLOW_PHASES, GPU_CATEGORIES
from service.trace.text import Members, Number, read, written

_ASYNC = ("b", "n", "e")
PHASES = ("X", "i", "I", "R", "B", "E", *_ASYNC, "C", *sorted(FLOW_PHASES))
"""The phases that the engine shows; all others but metadata are shown as instants."""

_CODES = {phase: code for code, phase in enumerate(PHASES)}
_INSTANT = _CODES["i"]
_ON_DEVICE = GPU_CATEGORIES | {"gpu_user_annotation"}
_LAUNCHES = frozenset({"ac2g", "async"})  # arrows, which end where a launch's work begins
_READ = frozenset({"bp", "s", "scope", "id2", "bind_id", "flow_in", "flow_out"})
_NUMBERS_READ = frozenset({"tts", "tdur"})  # the engine takes anything else for the end of the document
_TEXT_IDS = 1 << 61  # ids that are no integers are numbered from here on

_COLLECTIVE = b'"Collective name"'
_JOINED_END = len(PHASES)
_PHASE_TEXTS = Texts.of([*(phase.encode() for phase in PHASES), b'f","bp":"e'])


class SafeEvents:
    """Writes the events of a trace.

    Args:
        shown: gives tracks their processes and threads.
        rendered: counts what is made.
        args: which arguments are kept.
    """

    def __init__(self, shown: ShownTracks, rendered: Rendered, args: Args) -> None:
        self._shown = shown
        self._rendered = rendered
        self._kept_args = args
        self._categories = Vocabulary(lambda word: member("cat")(plain(word)))
        self._names = Vocabulary(lambda word: member("name")(plain(word)))
        self._rests = Vocabulary(self._rest_text)
        self._tracks = Tracks()
        self._lanes = Lanes()
        self._pids = np.zeros(0, np.int64)
        self._tids = np.zeros(0, np.int64)
        self._ids: dict[str, int] = {}
        self._flows = Flows()
        self._kinds = Words()  # of arrows: by category and name
        self._parts = 0

    def text(self, table: pa.Table) -> bytes:
        """The text of the next table's events, which are in order of time; without metadata and what has no time."""
        part = self._part(table.unify_dictionaries().combine_chunks())
        metadata, timed = part.which("ph", METADATA), part.has("ts_ns")
        self._rendered.events += len(part)
        self._rendered.metadata += int(metadata.sum())
        self._rendered.untimed += int((~metadata & ~timed).sum())
        if not (kept := timed & ~metadata).all():
            part = self._part(part.table.filter(pa.array(kept)).combine_chunks())
        return self._written(part) if len(part) else b""

    def _loose_ends(self, part: Part, ids: Ints, has_id: Flags) -> Flags:
        """Which events are ends of arrows that have not begun: the engine would pass over them."""
        flows = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
        loose = np.zeros(len(part), np.bool_)
        if len(flows):
            kinds = (self._kinds.of(part, column)[flows] for column in ("cat", "name"))
            keys = mixed(ids[flows], has_id[flows], *kinds)
            loose[flows] = self._flows.loose(keys, part.which("ph", {"s"}.__contains__)[flows])
            self._rendered.loose_ends += int(loose.sum())
        return loose

    def _part(self, table: pa.Table) -> Part:
        self._parts += 1
        return Part(self._parts, 0, table)

    def _written(self, part: Part) -> bytes:
        ids, has_id = self._ids_of(part)
        loose = self._loose_ends(part, ids, has_id)
        phases = self._phases(part, loose)
        is_slice = phases == _CODES["X"]
        starts, lasts = self._times(part, is_slice)
        is_flow = np.isin(phases, [_CODES[phase] for phase in FLOW_PHASES])
        kinds = np.select([is_slice, is_flow], [SLICE, FLOW], OTHER)
        placed, joined = self._lanes.lay(self._numbers_of_tracks(part, phases), starts, starts + lasts, kinds)
        self._show_lanes()
        always = np.ones(len(part), np.bool_)
        texts, fates = self._args(part, phases == _CODES["C"])
        fates[loose] = LEFT_OUT
        return lines_of(
            [(_PHASE_TEXTS, _with_joined_ends(part, phases, joined)), *self._words(part)],
            np.stack([self._pids[placed], self._tids[placed], starts, lasts, ids]),
            np.stack([always, always, always, is_slice, has_id]),
            texts,
            fates,
            np.stack([part.ints(column) for column in ESSENTIAL_COLUMNS]),
            np.stack([part.has(column) for column in ESSENTIAL_COLUMNS]),
        )

    def _words(self, part: Part) -> list[tuple[Texts, Ints]]:
        """The texts of categories, names and what else events have, and the number of each event's."""
        texts = []
        for column, made in (("cat", self._categories), ("name", self._names)):
            codes, words = part.coded(column)
            texts.append((made.of(words), np.where(codes < 0, len(words), codes)))
        rest = part.table["rest"].combine_chunks().dictionary_encode()
        words = rest.dictionary.to_pylist()
        texts.append((self._rests.of(words), rest.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)))
        return texts

    def _phases(self, part: Part, loose: Flags) -> Ints:
        """The phase of each event, as it is shown; counted but for what is loose."""
        own, words = part.coded("ph")
        phases = np.array([_CODES.get(word, _INSTANT) for word in (*words, "")], np.int64)[own]
        without_id = np.isin(phases, [_CODES[phase] for phase in _ASYNC]) & ~part.has("id") & ~part.has("id_text")
        phases[without_id] = _INSTANT
        rendered = self._rendered
        for code, count in zip(*np.unique(phases[~loose], return_counts=True), strict=True):
            rendered.phases[PHASES[code]] += int(count)
        changed = without_id | ((phases == _INSTANT) & ~part.which("ph", {"i"}.__contains__))
        for code, count in zip(*np.unique(own[changed], return_counts=True), strict=True):
            rendered.as_instants[words[code] if code >= 0 else ""] += int(count)
        return phases

    def _times(self, part: Part, is_slice: Flags) -> tuple[Ints, Ints]:
        """When events begin, and how long slices last, as they are shown."""
        rendered, starts, lasts = self._rendered, part.starts, np.where(is_slice, part.ints("dur_ns"), 0)
        early, late = starts < rendered.base_ns, starts > min(rendered.base_ns + SPAN_MAX, ALWAYS[1])
        long, negative = lasts > SPAN_MAX, lasts < 0
        rendered.moved += int((early | late | long).sum())
        rendered.negative += int(negative.sum())
        return engine_times(starts, lasts, rendered.base_ns)

    def _numbers_of_tracks(self, part: Part, phases: Ints) -> Ints:
        """A number for the track of each event, from which `_show_lanes` tells it.

        What begins and ends by events of its own is on a track of its own, where no end can be taken for a slice's.
        """
        tracks = self._tracks.of(part)
        paired = np.isin(phases, [_CODES["B"], _CODES["E"]])
        shared = np.array([self._shown.is_shared(*key) for key in self._tracks.keys], np.bool_)
        if not shared.any():
            return 4 * tracks + 2 * paired
        on_device = part.which("cat", _ON_DEVICE.__contains__)
        on_device |= part.which("ph", {"f"}.__contains__) & part.which("cat", _LAUNCHES.__contains__)
        return 4 * tracks + 2 * paired + (on_device & shared[tracks])

    def _show_lanes(self) -> None:
        """Give new lanes their processes and threads."""
        if len(self._lanes) == len(self._pids):
            return
        fresh = []
        for lane in range(len(self._pids), len(self._lanes)):
            number, nth = self._lanes.where(lane)
            pid, tid = self._tracks.keys[number // 4]
            fresh.append(self._shown.show(pid, tid, nth, on_device=number % 2 == 1))
        self._pids = np.concatenate([self._pids, [one.pid for one in fresh]])
        self._tids = np.concatenate([self._tids, [one.tid for one in fresh]])

    def _ids_of(self, part: Part) -> tuple[Ints, Flags]:
        """The ids of events, as integers, and which have one."""
        codes, words = part.coded("id_text")
        numbers = np.array([*map(self._id, words), 0], np.int64)[codes]
        return np.where(codes < 0, part.ints("id"), numbers), (codes >= 0) | part.has("id")

    def _id(self, text: str) -> int:
        return self._ids.setdefault(text, _TEXT_IDS + len(self._ids))

    def _args(self, part: Part, is_counter: Flags) -> tuple[Texts, Ints]:
        """The texts of arguments, and what becomes of each; those of counters are without what is no number."""
        column = part.table["args"].combine_chunks()
        texts = Texts.in_array(column)
        fates = np.full(len(part), {"all": COPIED, "essential": ESSENTIAL, "none": NO_ARGS}[self._kept_args])
        if self._kept_args == "essential":
            fates[tells(texts.values, texts.starts, _COLLECTIVE) | part.which("name", {"[memory]"}.__contains__)] = (
                COPIED
            )
        fates[is_counter] = COPIED
        changed = {row: harmless(column[row].as_py()) for row in suspects(texts.values, texts.starts).tolist()}
        for row in np.flatnonzero(is_counter).tolist():
            changed[row], count, others = counters(column[row].as_py())
            self._rendered.numbers += count
            self._rendered.no_numbers += others
        if changed:
            rows = np.zeros(len(part), np.bool_)
            rows[list(changed)] = True
            values = pa.array([changed[row] for row in sorted(changed)], pa.string())
            texts = Texts.in_array(pa.compute.replace_with_mask(column, rows, values))
        return texts, fates

    def _rest_text(self, text: str) -> str:
        """What the engine reads of an event beside its columns, as the text of members with a comma before each."""
        kept = Members(
            (key, value) for key, value in dict(read(text)).items()
            if key in _READ or (key in _NUMBERS_READ and isinstance(value, Number) and is_kept(value))
        )  # fmt: skip
        return f",{harmless(written(kept))[1:-1]}" if kept else ""


def _with_joined_ends(part: Part, phases: Ints, joined: Flags) -> Ints:
    """The phases; ends of arrows that do not say so are joined to the slice that begins then, not to the next."""
    ends = np.flatnonzero(joined & (phases == _CODES["f"]))
    told = pa.compute.match_substring(part.table["rest"].take(ends), '"bp"').fill_null(False).to_numpy()
    phases[ends[~told]] = _JOINED_END
    return phases

"""Events of a document that have their ids, lanes and times. Any thread can write them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.attribution.work import COLLECTIVE
from service.rendering.sanitizing import Bytes, sanitized, suspects
from service.rendering.text import ALL_ARGS, NO_ARGS, SOME_ARGS, PackedTexts
from service.store.parts import Flags, Ints, Part
from service.streaming.scan.search import containing
from service.trace.selection_fields import Args

ESSENTIAL_COLUMNS = ("correlation", "device", "stream", "bytes")  # External ids would take a fifth of the time to load
_MODES = {"all": ALL_ARGS, "essential": SOME_ARGS, "none": NO_ARGS}


@dataclass(frozen=True)
class Arguments:
    """The arguments of events.

    Attributes:
        values: their JSON texts.
        starts: the index in `values` at which those of each event begin.
        stops: the index after their end.
        modes: `NO_ARGS`, `ALL_ARGS`, or `SOME_ARGS`: those of `ESSENTIAL_COLUMNS`, for each event.
    """

    values: Bytes
    starts: Ints
    stops: Ints
    modes: Ints

    def changed(self, texts: Mapping[int, str]) -> "Arguments":
        """Return the arguments with the texts of some rows replaced, which are all kept."""
        rows = np.array([*texts], np.int64)
        others = PackedTexts.of([text.encode() for text in texts.values()])
        starts, stops, modes = self.starts.copy(), self.stops.copy(), self.modes.copy()
        starts[rows], stops[rows] = len(self.values) + others.starts[:-1], len(self.values) + others.starts[1:]
        modes[rows] = ALL_ARGS
        return Arguments(np.concatenate([self.values, others.values]), starts, stops, modes)


@dataclass(frozen=True)
class PlacedEvents:
    """Events of a document, in order of time.

    Attributes:
        part: the events.
        phases: the phase that is shown of each event, as its index in `PHASES`.
        lanes: the lane of each event.
        pids: the engine's process of each lane.
        tids: the engine's thread of each lane.
        starts: in ns from the document's first event.
        durations: in ns; 0 for events other than slices.
        ids: the id of each event.
        has_id: flags of the events that have an id.
        arrows: numbers of arrows; ends of one arrow have the same number. Other events have 0.
        joined: flags of the ends of arrows that belong to the slice that begins at the same time.
        covered: flags of the ends of arrows in a slice that goes on.
        ends_with_parent: flags of the slices that end with the slice around them.
        left_out: flags of the events that are not shown.
        kept_args: the arguments to keep.
        counters: the arguments of counters, as JSON, by row.
    """

    part: Part
    phases: Ints
    lanes: Ints
    pids: Ints
    tids: Ints
    starts: Ints
    durations: Ints
    ids: Ints
    has_id: Flags
    arrows: npt.NDArray[np.uint64]
    joined: Flags
    covered: Flags
    ends_with_parent: Flags
    left_out: Flags
    kept_args: Args
    counters: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.part)

    def arguments(self, *, in_json: bool) -> Arguments:
        """Return the arguments to show; harmful ones are changed, see `sanitized`."""
        column = self.part.table["args"].combine_chunks()
        texts = PackedTexts.in_array(column)
        modes = np.full(len(self), _MODES[self.kept_args])
        if self.kept_args == "essential":
            modes[self.part.which("name", {"[memory]"}.__contains__)] = ALL_ARGS
            modes[containing(column, COLLECTIVE)] = ALL_ARGS
        harmful = suspects(texts.values, texts.starts, modes == ALL_ARGS).tolist()
        changed = {row: sanitized(column[row].as_py(), in_json=in_json) for row in harmful} | {**self.counters}
        args = Arguments(texts.values, texts.starts[:-1], texts.starts[1:], modes)
        return args.changed(changed) if changed else args

    def essential(self) -> tuple[Ints, Flags]:
        """Return rows of the values of `ESSENTIAL_COLUMNS`, and rows of flags of those that are present.

        The rows are empty if no event has only these arguments.
        """
        if self.kept_args != "essential":
            return np.zeros((len(ESSENTIAL_COLUMNS), 0), np.int64), np.zeros((len(ESSENTIAL_COLUMNS), 0), np.bool_)
        return (
            np.stack([self.part.ints(column) for column in ESSENTIAL_COLUMNS]),
            np.stack([self.part.has(column) for column in ESSENTIAL_COLUMNS]),
        )

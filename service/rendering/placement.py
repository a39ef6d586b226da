"""The placement of events on lanes, and the processes and threads of these lanes."""

import numpy as np

from service.rendering.lanes import LaneAssigner
from service.rendering.render_report import EngineTrack
from service.rendering.track_numbers import TrackNumbers
from service.rendering.tracks import TrackAssigner
from service.store.flow_ids import LAUNCH_FLOWS
from service.store.parts import Flags, Ints, Part
from service.trace.summary import GPU_CATEGORIES

_ON_DEVICE = GPU_CATEGORIES | {"gpu_user_annotation"}


class LanePlacer:
    """Places events on lanes.

    Args:
        assigner: assigns processes and threads to lanes.

    Attributes:
        tracks: the process and thread of each lane.
    """

    def __init__(self, assigner: TrackAssigner) -> None:
        self._assigner = assigner
        self._tracks = TrackNumbers()
        self._lanes = LaneAssigner()
        self.tracks: list[EngineTrack] = []

    def place(self, part: Part, starts: Ints, ends: Ints, kinds: Ints, paired: Flags) -> tuple[Ints, Flags, Flags]:
        """Return the lane of each event, and the flags that `LaneAssigner.assign` returns.

        Args:
            part: the events; see `LaneAssigner.assign` for the order of calls.
            starts: the start of each event, in ns.
            ends: the end of each event, in ns.
            kinds: the kind of each event; see `service.rendering.lanes`.
            paired: flags of the slices with separate begin and end events. They get a track of their own, where no end
                can match another slice.
        """
        lanes, joined, covered = self._lanes.assign(self._numbers(part, paired), starts, ends, kinds)
        for lane in range(len(self.tracks), len(self._lanes)):
            number, nth = self._lanes.track_of(lane)
            pid, tid = self._tracks.keys[number // 4]
            self.tracks.append(self._assigner.assign(pid, tid, nth, on_device=number % 2 == 1))
        return lanes, joined, covered

    def _numbers(self, part: Part, paired: Flags) -> Ints:
        """Return the number of each event's track, in the encoding that `place` decodes."""
        tracks = self._tracks.of(part)
        shared = np.array([self._assigner.is_shared(*key) for key in self._tracks.keys], np.bool_)
        if not shared.any():
            return 4 * tracks + 2 * paired
        on_device = part.which("cat", _ON_DEVICE.__contains__)
        on_device |= part.which("ph", {"f"}.__contains__) & part.which("cat", LAUNCH_FLOWS.__contains__)
        return 4 * tracks + 2 * paired + (on_device & shared[tracks])

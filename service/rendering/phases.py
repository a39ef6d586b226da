"""The phases that the engine shows."""

import numpy as np

from service.store.parts import Ints, Part
from service.trace.summary import FLOW_PHASES

_ASYNC = ("b", "n", "e")
PHASES = ("X", "i", "I", "R", "B", "E", *_ASYNC, "C", *sorted(FLOW_PHASES))
"""The phases that the engine shows; all others except metadata become instants."""

CODES = {phase: code for code, phase in enumerate(PHASES)}
INSTANT = CODES["i"]

JOINED_END = len(PHASES)
"""The end of an arrow that belongs to the slice that begins at the same time, although it does not say so."""


def shown_phases(part: Part) -> Ints:
    """Return the index in `PHASES` of the phase that is shown for each event."""
    own, words = part.coded("ph")
    of_words = np.array([CODES.get(word, INSTANT) for word in (*words, "")], np.int64)  # the last one is that of null
    phases: Ints = of_words.take(own, mode="wrap")
    if not {*_ASYNC}.isdisjoint(words):
        without_id = np.isin(phases, [CODES[phase] for phase in _ASYNC]) & ~part.has("id") & ~part.has("id_text")
        phases[without_id] = INSTANT
    return phases

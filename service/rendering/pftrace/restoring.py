"""The events that are restored from packets alone; all others need a copy as JSON."""

import numpy as np

from service.formats.pftrace.written import WITH_ID
from service.rendering.phases import PHASES
from service.store.parts import Flags, Ints, Part
from service.trace.summary import FLOW_PHASES

_CODES = {phase: code for code, phase in enumerate(PHASES)}
_PLAIN, _OF_THREAD, BINDS, _OTHER_REST = range(4)
"""Kinds of the members in ``rest``: none, the scope of a thread, the binding of an arrow, and others."""
_RESTS = {"": _PLAIN, '{"s":"t"}': _OF_THREAD, '{"bp":"e"}': BINDS}


def rest_kinds(part: Part) -> Ints:
    """Return the kind of each event's further members."""
    rest = part.table["rest"].combine_chunks().dictionary_encode()
    kinds = [_RESTS.get("".join(word.split()), _OTHER_REST) for word in rest.dictionary.to_pylist()]
    codes = rest.indices.fill_null(len(kinds)).to_numpy(zero_copy_only=False)
    by_event: Ints = np.array([*kinds, _PLAIN], np.int64)[codes]
    return by_event


def restored(part: Part, phases: Ints, rests: Ints, has_id: Flags) -> Flags:
    """Return flags of the events that are restored from packets, by all but their times and arguments."""
    own = part.which("ph", frozenset((*PHASES,)).__contains__)
    own &= ~((phases == _CODES["i"]) & ~part.which("ph", {"i"}.__contains__))
    by_phase = np.isin(phases, [_CODES[phase] for phase in WITH_ID])
    is_flow = np.isin(phases, [_CODES[phase] for phase in FLOW_PHASES])
    fits = np.select(
        [phases == _CODES["X"], phases == _CODES["i"], is_flow, by_phase],
        [rests == _PLAIN, rests == _OF_THREAD, (rests == _PLAIN) | (rests == BINDS), rests == _PLAIN],
        default=False,
    )
    ids = np.where(by_phase, has_id, ~part.has("id")) & ~part.has("id_text")
    places = np.ones(len(part), np.bool_)
    for column in ("pid", "tid"):
        places &= part.has(column) | part.which(f"{column}_text", _is_plain_text)
    durations = part.has("dur_ns") == (phases == _CODES["X"])
    verbatim = part.table["verbatim"].to_numpy()
    whole: Flags = own & fits & ids & places & durations & part.has("name") & ~verbatim
    return whole


def _is_plain_text(text: str | None) -> bool:
    return text is not None and text.startswith('"') and "\\" not in text

"""The inputs of one rank: its trace, and what other tools recorded beside it."""

from service.trace.summary import TIMELINE_CATEGORY, InputKind, Summary

TITLES: dict[InputKind, str] = {
    "trace": "trace",
    "nsight_systems": "Nsight Systems",
    "perfetto": "Perfetto",
    "memory_snapshot": "memory snapshot",
    "memory_timeline": "memory timeline",
}
"""Titles of the kinds. Of a rank's inputs, the first of these is the rank itself; the others are beside it."""

_KINDS: dict[str, InputKind] = {"sqlite": "nsight_systems", "pftrace": "perfetto"}
"""Kinds by format."""


def kind_of(summary: Summary) -> InputKind:
    """Return what recorded a trace."""
    if summary.is_memory_history:
        is_timeline = any(key.endswith(f"|{TIMELINE_CATEGORY}") for key in summary.counts)
        return "memory_timeline" if is_timeline else "memory_snapshot"
    return _KINDS.get((summary.format or "").partition(".")[0], "trace")

"""Patterns of paths: ``*`` and ``?`` match any characters except ``/``, and ``**`` any folders."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

CHARACTERS = frozenset("*?[")
"""Characters that make a path a pattern."""


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path matches a pattern, part by part."""
    reached = {0}  # the numbers of parts of the pattern that may have matched so far
    for part in parts:
        reached = _with_skips(reached, pattern)
        reached = {
            at if pattern[at] == "**" else at + 1
            for at in reached
            if at < len(pattern) and (pattern[at] == "**" or fnmatchcase(part, pattern[at]))
        }
    return len(pattern) in _with_skips(reached, pattern)


def _with_skips(reached: set[int], pattern: Sequence[str]) -> set[int]:
    """Return the numbers, and the next number after each ``**``, which also matches no folder at all."""
    every = set(reached)
    for at in range(len(pattern)):
        if at in every and pattern[at] == "**":
            every.add(at + 1)
    return every

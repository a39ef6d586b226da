"""Stacks of a memory snapshot as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.formats.memory_snapshot.text import Texts

SITE_MAX = 120
"""Largest number of characters of a site."""

_NAME_MAX = 400
_FRAMES_MAX = 1 << 22
_NATIVE = "??"

Frame = tuple[str, str, int]
"""Function, file and line."""


def is_python(frame: Frame) -> bool:
    """Return whether a frame is of a Python function."""
    return frame[1].endswith(".py")


def frame_text(frame: Frame) -> str:
    """Return a frame as text."""
    name, file, line = frame
    return f"{file}:{line} {name}"


def site_of(frames: Sequence[Frame]) -> str | None:
    """Return the innermost Python frame of a stack, else its innermost frame, as text; None for an empty stack."""
    if not frames:
        return None
    name, file, line = next(filter(is_python, frames), frames[0])
    if file in ("", _NATIVE):
        return name[:SITE_MAX]
    place = f"{file}:{line}"[-SITE_MAX + 20 :]
    return f"{place} {name}"[:SITE_MAX]


class Stacks:
    """The stacks of a snapshot.

    Args:
        frames: the frames.
        stacks: numbers of the frames of each stack, innermost first.
    """

    def __init__(self, frames: Sequence[Frame], stacks: Sequence[Sequence[int]]) -> None:
        self._frames = frames
        self._stacks = stacks
        self.sites = [site_of([frames[number] for number in stack]) for stack in stacks]

    def tails(self) -> Texts:
        """Return the ends of arguments that name a stack, by its number; the last one names none."""
        return Texts([*(self._tail(number, site) for number, site in enumerate(self.sites)), b"}"])

    @staticmethod
    def _tail(number: int, site: str | None) -> bytes:
        site_member = "" if site is None else f', "Site": {json.dumps(site)}'
        return f', "Stack": {number}{site_member}}}'.encode()

    def site(self, number: int) -> str | None:
        """Return the site of a stack; None for -1."""
        return self.sites[number] if number >= 0 else None

    def as_members(self) -> Mapping[str, Any]:
        """Return frames and stacks as JSON values; very many long stacks lose their outermost frames."""
        depth = max(_FRAMES_MAX // max(len(self._stacks), 1), 1)
        return {
            "frames": [[name[:_NAME_MAX], file[-_NAME_MAX:], line] for name, file, line in self._frames],
            "stacks": [list(stack[:depth]) for stack in self._stacks],
        }

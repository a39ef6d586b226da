"""Stacks of a memory snapshot as text."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from service.formats.memory_snapshot.text import Texts

SITE_MAX = 120
"""Largest number of characters of a site."""

_NAME_MAX = 400
_FRAMES_MAX = 1 << 22
_NATIVE = "??"
_OPERATOR = re.compile(r"at::_ops::\w+(?=::)")
"""Class of the generated functions of ATen through which an operator is called."""
_ALLOCATES = re.compile(r"torch::unwind::|CapturedTraceback::|gather_with_cpp|CachingAllocator|CachingHostAllocator")
"""Functions of torch's allocators and of its recording of stacks, which are the innermost frames of each stack."""

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
    """Return as text the frame that tells best where a stack allocates; None for an empty stack.

    It is the innermost Python frame. A stack without one, such as that of a backward pass, is told by its innermost
    operator or, without one, by its innermost frame outside of the allocator and of the recording of stacks.
    """
    if not frames:
        return None
    if python := next(filter(is_python, frames), None):
        return _placed(python)
    if operator := next(filter(None, (_OPERATOR.match(name) for name, _, _ in frames)), None):
        return operator[0][:SITE_MAX]
    return _placed(next((frame for frame in frames if not _ALLOCATES.search(frame[0])), frames[0]))


def _placed(frame: Frame) -> str:
    """Return a frame as text, with its place before its name, if that is known."""
    name, file, line = frame
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

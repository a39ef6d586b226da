"""Items of nested arrays of numbers, read piece by piece."""

import re
from collections.abc import Iterable, Iterator

from service.trace.errors import NotATrace, Truncated

_ITEM_MAX = 1 << 16
"""Largest size of an item in bytes."""
_COMMA_OR_END = re.compile(rb"\s*([,\]])")
_OTHER = re.compile(rb"[^\s\[\],0-9-]")
"""A byte that no item has; a text without one may be the start of an item that is cut."""
_SHOWN = 40  # bytes of an unexpected text


class Items:
    """The text of a document, from its start to its end.

    Args:
        chunks: the text, in order.

    Attributes:
        offset: offset of the next byte to read.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._text = b""
        self._at = 0
        self._dropped = 0

    @property
    def offset(self) -> int:
        """Offset of the next byte to read."""
        return self._dropped + self._at

    def take(self, pattern: re.Pattern[bytes], what: str) -> re.Match[bytes]:
        """Return the next item.

        Args:
            pattern: its pattern.
            what: what is expected, for messages.

        Raises:
            NotATrace: there is another text.
            Truncated: the text ends here.
        """
        while True:
            match = pattern.match(self._text, self._at)
            if match and match.end() < len(self._text):  # otherwise more of the item may come
                self._at = match.end()
                return match
            unread = self._text[self._at :]
            if len(unread) <= _ITEM_MAX and self._extend():
                continue
            if match:  # the last item of a document that is cut, or whole
                self._at = match.end()
                return match
            if len(unread) <= _ITEM_MAX and not _OTHER.search(unread) and b"]" not in unread[:-1]:
                raise Truncated(f"The memory timeline ends where {what} is expected.", offset=self.offset)
            found = unread[:_SHOWN].decode("utf-8", "replace")
            raise NotATrace(f"The memory timeline has {found!r} where {what} is expected.", offset=self.offset)

    def until_close(self, pattern: re.Pattern[bytes], what: str) -> Iterator[re.Match[bytes]]:
        """Yield items with commas between them, up to the end of their array; raises what `take` raises."""
        while True:
            yield self.take(pattern, what)
            if self.take(_COMMA_OR_END, "a comma or the end of an array")[1] == b"]":
                return

    def rest(self) -> bytes:
        """Return the first bytes after the last item, without blanks; empty at the end of the text."""
        while not (rest := self._text[self._at :].strip()) and self._extend():
            pass
        return rest[:_SHOWN]

    def _extend(self) -> bool:
        """Add the next piece of the text; return False at its end."""
        piece = next(self._chunks, b"")
        self._dropped += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

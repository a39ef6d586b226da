"""A trace document as a stream: its events one by one, and its envelope, which is all that stands around them.

ijson's C parser reads the events in one pass and proves the whole document. It does not tell where the array of
events began and ended, so the bytes around the two borders are held back, and the borders found in them by their
brackets: exactly, because the parser has proved that strings close and brackets balance.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

import ijson

from service.trace.errors import IngestError, NotATrace, NotJson, Truncated

ENVELOPE_MAX = 64 << 20
"""Bytes that may stand before the first event, and after the last one."""

_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]|\\.)*+"', re.DOTALL)
_OPENS_ARRAY = re.compile(rb"\s*:\s*\[")
_ARROW = b"                     (right here) ------^"
_MARGIN, _CONTEXT = 10, 30  # columns of spaces before the context, and bytes of it before where the parser stopped
_READ = b"invalid char in json text.", b"invalid bytes in UTF8 string."  # other bytes the lexer puts back
_AMBIGUOUS = "Trace events stand elsewhere than in one array `traceEvents`."
_NEWLINES_AS_SPACES = bytes.maketrans(b"\r\n", b"  ")


class StringTracker:
    """Whether a chunk border stands inside a JSON string, without a look at each byte."""

    def __init__(self) -> None:
        self.inside = False
        self.escaped = False

    def advance(self, chunk: bytes) -> None:
        """Move over the next chunk of a document."""
        if self.escaped:
            chunk = chunk[1:]
        self.escaped = False
        if b"\\" in chunk:
            chunk = chunk.replace(b"\\\\", b"")
            self.escaped = chunk.endswith(b"\\")
            chunk = chunk.replace(b'\\"', b"")
        self.inside ^= bool(chunk.count(b'"') & 1)


class Document:
    """One trace document, read once.

    Iterate `events` to its end, then ask for `envelope_text` and `envelope`.

    Args:
        chunks: the document's plain bytes, in order.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = self._without_bom(chunks)
        self._chunk = b""
        self._taken = 0
        self._strings = StringTracker()
        self._has_events = False
        self._array_start: int | None = None
        self._head = b""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._held_from = 0
        self._held_inside = False
        self._held_escaped = False
        self._bare = False
        self._path = "traceEvents.item"

    def events(self) -> Iterator[Any]:
        """Yield each element of the events array: objects, in any sound trace; numbers are int or Decimal.

        Raises:
            NotJson: the parser stumbled; ``offset`` is the byte of the document.
            Truncated: the document ends early.
            NotATrace: there is no array of events.
        """
        first = self._first_chunk()
        if first.startswith(b"["):
            self._bare, self._path = True, "item"
        self._chunks = chain([first], self._chunks)
        try:
            for event in ijson.items(SimpleNamespace(read=self._read), self._path):
                self._has_events = True
                yield event
        except ijson.JSONError as error:
            raise self._stumble(error) from error
        except (UnicodeDecodeError, ArithmeticError) as error:
            raise NotJson(
                f"One of the {len(self._chunk)} bytes after byte {self._taken} is of a string with half a surrogate"
                " pair, or of a number with an exponent beyond all measure.",
                offset=self._taken,
            ) from error

    def _without_bom(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        chunks, head = iter(chunks), b""
        for chunk in chunks:
            head += chunk
            if len(head) >= len(_BOM):
                break
        if head.startswith(_BOM):
            self._taken = len(_BOM)
        yield head[self._taken :]
        yield from chunks

    def _first_chunk(self) -> bytes:
        """The first chunk that is more than white space, without what it has of it."""
        for chunk in self._chunks:
            first = chunk.lstrip()
            self._taken += len(chunk) - len(first)
            if first:
                return first
        raise NotJson("The file holds no JSON document: it is empty.", offset=self._taken)

    def _read(self, size: int) -> bytes:
        """The next chunk, as ijson asks for it once it has yielded the events of the one before; ``b""`` at the end."""
        if size == 0:  # how ijson asks whether it gets bytes or text
            return b""
        self._pass_chunk()
        self._chunk = next(filter(None, self._chunks), b"")
        return self._chunk

    def _pass_chunk(self) -> None:
        inside, escaped = self._strings.inside, self._strings.escaped
        self._strings.advance(self._chunk)
        self._hold(self._chunk, inside=inside, escaped=escaped, has_events=self._has_events)
        self._taken += len(self._chunk)
        self._has_events = False

    def _stumble(self, error: Exception) -> IngestError:
        if self._chunk:
            return _stumble(error, self._chunk, self._taken)
        return Truncated(f"The JSON document ends at byte {self._taken}, before its end.", offset=self._taken)

    def _hold(self, chunk: bytes, *, inside: bool, escaped: bool, has_events: bool) -> None:
        """Keep what may hold a border: all before the first event, all from the chunk that ends the last one."""
        if has_events and self._array_start is None:
            head = b"".join(self._held) + chunk
            self._array_start = self._held_from + _array_start(head, bare=self._bare)
            self._head = head[: self._array_start - self._held_from + 1]
        if has_events:
            self._held, self._held_bytes = [], 0
            self._held_from, self._held_inside, self._held_escaped = self._taken, inside, escaped
        elif not self._held:
            self._held_from = self._taken
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes > ENVELOPE_MAX:
            raise NotATrace(
                f"The {self._held_bytes} bytes after byte {self._held_from} hold no end of a trace event:"
                f" at most {ENVELOPE_MAX} may stand before, in or after one.",
                offset=self._held_from,
                limit=ENVELOPE_MAX,
            )

    def envelope_text(self) -> bytes:
        """The document's own text with an empty array of events; for a bare array, ``[]``."""
        held = b"".join(self._held)
        if self._array_start is None:
            return held
        start = self._array_start - self._held_from
        if start >= 0:
            return self._head + held[start + 1 + _array_end(held[start + 1 :], bare=self._bare) :]
        if self._held_escaped:
            held = held[1:]
        if self._held_inside:
            rest = _REST_OF_STRING.match(held)
            held = held[rest.end() :] if rest else b""
        return self._head + held[_array_end(held, bare=self._bare) :]

    def envelope(self) -> dict[str, Any]:
        """All top-level keys but ``traceEvents``; empty for a bare array.

        Raises:
            NotATrace: the document has no array of events, or they stand elsewhere too.
        """
        text = self.envelope_text()
        if any(True for _ in ijson.items(text, self._path)):
            raise NotATrace(_AMBIGUOUS)
        (document,) = ijson.items(text, "")
        if isinstance(document, list):
            return {}
        if not isinstance(document, dict) or not isinstance(document.pop("traceEvents", None), list):
            raise NotATrace("The JSON document has no array `traceEvents`.")
        return document


def _array_start(head: bytes, *, bare: bool) -> int:
    """The offset of the bracket that opens the events array."""
    if bare:
        return head.index(b"[")
    depth = 0
    for token in _TOKEN.finditer(head):
        match token[0][:1]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case _ if depth == 1 and (opening := _OPENS_ARRAY.match(head, token.end())):
                if json.loads(token[0]) == "traceEvents":  # escapes and all
                    return opening.end() - 1
    raise NotATrace(_AMBIGUOUS)


def _array_end(rest: bytes, *, bare: bool) -> int:
    """The offset of the bracket that closes the events array, in the end of a document that starts inside it.

    Depths are counted from the start and are known at the end, where a document closes to nothing.
    """
    depth, closings = 0, []
    for token in _TOKEN.finditer(rest):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}":
                depth -= 1
            case b"]":
                depth -= 1
                closings.append((depth, token.start()))
    outside = depth if bare else depth + 1
    for after, offset in closings:
        if after == outside:
            return offset
    raise NotATrace(_AMBIGUOUS)


def _stumble(error: Exception, chunk: bytes, before: int) -> IngestError:
    """Our error for the parser's, at the byte that it could not take, or the last one of a token.

    yajl prints 30 bytes of text on each side of where it stopped, newlines as spaces, and below them an arrow. Where
    the chunk has fewer, it pads with spaces. A NUL ends its text early.
    """
    message: str | bytes = error.args[0]
    what, _, rest = (message if isinstance(message, bytes) else message.encode()).partition(b"\n")
    line = rest.partition(b"\n")[0]
    context = (line.removesuffix(_ARROW) + b"\0" if line.endswith(_ARROW) else line)[_MARGIN:]
    found = (b" " * _CONTEXT + chunk.translate(_NEWLINES_AS_SPACES)).find(context)
    put_back = what.startswith(b"lexical error") and not what.endswith(_READ)
    offset = before if found < 0 else before + found - (not put_back)
    reason = what.split(b": ", 1)[-1].decode("utf-8", "replace").rstrip(".")
    return NotJson(f"The document is not JSON at byte {offset}: {reason}.", offset=offset)

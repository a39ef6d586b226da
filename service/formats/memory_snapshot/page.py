"""Pickles in the pages that `torch.cuda._memory_viz` writes."""

import base64
import binascii
from collections.abc import Iterable, Iterator

from service.trace.errors import IngestError, NotATrace, Truncated

_START = b'"base64": "'
_KEPT = 64
_WHOLE = 4  # characters of base64 for three bytes


def starts_page(plain: bytes) -> bool:
    """Return whether a text starts like an HTML page."""
    return plain.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html"))


def pickle_in(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of the first pickle in a page.

    Raises:
        NotATrace: the page has none.
        IngestError: the pickle is not valid base64.
        Truncated: the page ends within the pickle.
    """
    text, offset, begun = b"", 0, False
    for chunk in chunks:
        text += chunk
        if not begun:
            start = text.find(_START)
            if start < 0:
                offset += max(len(text) - _KEPT, 0)
                text = text[-_KEPT:]
                continue
            offset, text, begun = offset + start + len(_START), text[start + len(_START) :], True
        end = text.find(b'"')
        size = end if end >= 0 else len(text) // _WHOLE * _WHOLE
        try:
            yield base64.b64decode(text[:size], validate=True)
        except binascii.Error as error:
            raise IngestError(
                f"The pickle in the page is not base64 after byte {offset}: {error}.", offset=offset
            ) from error
        if end >= 0:
            return
        offset, text = offset + size, text[size:]
    if begun:
        raise Truncated(f"The page ends at byte {offset + len(text)}, within a pickle.", offset=offset + len(text))
    raise NotATrace(
        "The page has no memory snapshot. Import the pickle that torch.cuda.memory._dump_snapshot wrote,"
        " or a page that torch.cuda._memory_viz made of it."
    )

"""Tables within the width of a terminal: names are cut in the middle, numbers never."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 2
"""Spaces between two columns."""
_NARROWEST = 24
"""Narrowest column of cut names."""
_IDS = frozenset({"id", "job", "trace"})
_WIDEST_KEYS = 0.6
"""Largest share of the width for the columns that each part of a table repeats."""
_ELLIPSIS = "…"


def cell_width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - most tables are ASCII

    return cell_len(text)


def cut_middle(text: str, width: int) -> str:
    """Return the text in at most `width` columns, with `…` in place of its middle."""
    if cell_width(text) <= width:
        return text
    left = (width - 1) - (width - 1) // 2
    return _start(text, left) + _ELLIPSIS + _start(text[::-1], width - 1 - left)[::-1]


def fitted(widths: Sequence[int], cuttable: Sequence[bool], available: int) -> list[int]:
    """Return the widths of columns in a table of `available` columns; the widest of the cuttable ones shrink first.

    The table stays too wide if the columns that can't be cut fill it.
    """
    fitting = list(widths)
    excess = sum(fitting) + GAP * (len(fitting) - 1) - available
    while excess > 0:
        wide = [at for at, cut in enumerate(cuttable) if cut and fitting[at] > _NARROWEST]
        if not wide:
            break
        fitting[max(wide, key=lambda at: fitting[at])] -= 1
        excess -= 1
    return fitting


def parts_of(widths: Sequence[int], keys: Sequence[int], available: int) -> list[list[int]]:
    """Return the columns of each part of a table that is wider than `available`; all but the first begin with the keys.

    Args:
        widths: the widths of all columns.
        keys: the columns that identify a row.
        available: the width of a part, which a single column may exceed.
    """
    parts: list[list[int]] = [[]]
    for column in range(len(widths)):
        if column in parts[-1]:
            continue
        if set(parts[-1]) - set(keys) and _total(widths, [*parts[-1], column]) > available:
            parts.append([*keys])
        if column not in parts[-1]:
            parts[-1].append(column)
    return parts


def keys(widths: Sequence[int], titles: Sequence[str], texts: Sequence[bool], available: int) -> list[int]:
    """Return the columns that identify a row, which each part of a table begins with.

    That is an id in the first column, or else the columns up to the one of names, or up to the first text; only that
    one if they are too wide.
    """
    if titles[0] in _IDS:
        return [0]
    named = next((at for at, title in enumerate(titles) if title == "name"), None)
    last = named if named is not None else next((at for at, is_text in enumerate(texts) if is_text), 0)
    leading = list(range(last + 1))
    return leading if _total(widths, leading) <= available * _WIDEST_KEYS else [last]


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[column] for column in columns) + GAP * (len(columns) - 1)


def _start(text: str, width: int) -> str:
    """Return the longest start of a text in at most `width` columns."""
    if text.isascii():
        return text[:width]
    end = used = 0
    for character in text:
        used += cell_width(character)
        if used > width:
            break
        end += 1
    return text[:end]

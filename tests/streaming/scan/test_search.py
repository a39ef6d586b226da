"""A word is found in the texts that contain it, as by a plain search."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.streaming.scan.search import WORD_MIN, containing, hashes

WORD = '"Collective name"'
PARTS = ["a" * WORD_MIN, "ab" * 9, "b" * 7, "a", "b", "\u00e9"]
"""Few parts, so that words often stand in texts, at every distance from an eighth byte, and several times."""
TEXTS = st.lists(st.none() | st.lists(st.sampled_from(PARTS), max_size=9).map("".join), max_size=12)
WORDS = (
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3)
    .map("".join)
    .filter(lambda word: len(word.encode()) >= WORD_MIN)
)


@given(texts=TEXTS, word=WORDS, first=st.integers(0, 12))
def test_texts_that_contain_a_word_are_found(texts: list[str | None], word: str, first: int) -> None:
    array = pa.array(texts, pa.string()).slice(first)
    assert containing(array, word.encode()).tolist() == [word in (text or "") for text in array.to_pylist()]


def test_word_is_found_wherever_it_stands() -> None:
    texts = ["x" * before + WORD + "y" * after for before in range(40) for after in (0, 1, 40)]
    texts += [text.replace("C", "c") for text in texts]
    assert containing(pa.array(texts), WORD.encode()).tolist() == [WORD in text for text in texts]


def test_short_word_is_refused() -> None:
    with pytest.raises(ValueError, match="less than 15 bytes"):
        containing(pa.array(["a"]), b"Collective")


@given(texts=TEXTS, begin=WORDS, end=WORDS, data=st.data())
def test_pieces_between_words_have_the_same_hash_if_they_are_the_same(
    texts: list[str | None], begin: str, end: str, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True)) if texts else []
    found, *has = hashes(pa.array(texts, pa.string()), begin.encode(), end.encode(), np.array(rows, np.int64))
    chosen = [texts[row] or "" for row in rows]
    assert [flags.tolist() for flags in has] == [[word in text for text in chosen] for word in (begin, end)]

    pieces = []
    for text in chosen:
        first, last = text.find(begin), text.find(end)
        pieces.append(None if first < 0 else text[first : last if last > first else None])
    numbers = found.tolist()
    assert [numbers.index(value) for value in numbers] == [pieces.index(piece) for piece in pieces]
    assert all(number == 0 for number, piece in zip(numbers, pieces, strict=True) if piece is None)

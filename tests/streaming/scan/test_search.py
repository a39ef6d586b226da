"""A word is found in the texts that contain it, as by a plain search."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.streaming.scan.search import containing, hashes, places

WORD = '"Collective name"'
TEXTS = st.lists(
    st.none() | st.text("ab\u00e9", max_size=12) | st.sampled_from(["", "abab", "\U0001f600ab"]), max_size=12
)


@given(texts=TEXTS, word=st.text("ab\u00e9", min_size=1, max_size=4), first=st.integers(0, 12), data=st.data())
def test_texts_that_contain_a_word_are_found(
    texts: list[str | None], word: str, first: int, data: st.DataObject
) -> None:
    array = pa.array(texts, pa.string()).slice(first)
    expected = [(text or "").encode().find(word.encode()) for text in array.to_pylist()]
    rows = data.draw(st.lists(st.integers(0, len(array) - 1), unique=True)) if len(array) else []
    assert containing(array, word.encode()).tolist() == [place >= 0 for place in expected]
    assert places(array, word.encode(), np.array(rows, np.int64)).tolist() == [expected[row] for row in rows]


def test_word_is_found_wherever_it_stands() -> None:
    texts = ["x" * before + WORD + "y" * after for before in range(40) for after in (0, 1, 40)]
    texts += [text.replace("C", "c") for text in texts]
    assert containing(pa.array(texts), WORD.encode()).tolist() == [WORD in text for text in texts]


@given(st.lists(st.tuples(st.text("ab", max_size=20), st.integers(0, 9), st.integers(-1, 20)), max_size=9))
def test_pieces_have_the_same_hash_if_they_are_the_same(texts: list[tuple[str, int, int]]) -> None:
    array = pa.array([text for text, _, _ in texts], pa.string())
    firsts, lasts = (np.array([min(text[place], len(text[0])) for text in texts], np.int64) for place in (1, 2))
    found = hashes(array, np.arange(len(texts)), firsts, lasts).tolist()
    pieces = [
        text[first : last if last > first else None]
        for (text, _, _), first, last in zip(texts, firsts.tolist(), lasts.tolist(), strict=True)
    ]
    assert [found.index(value) for value in found] == [pieces.index(piece) for piece in pieces]

"""The ends of an arrow have one number, and those of different arrows have different numbers."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.arrows import SCANNED, ArrowKeys
from tests.cutting.choices import cut, text_of

arrow = st.fixed_dictionaries(
    {"ph": st.sampled_from("stf")},
    optional={
        "id": st.integers(-2, 2) | st.sampled_from([1 << 62, "1", "a", 1.5]),
        "cat": st.sampled_from("ab"),
        "name": st.sampled_from("ab"),
    },
)


@given(st.lists(arrow, min_size=1, max_size=30))
def test_ends_have_the_same_number_if_their_ids_categories_and_names_are_equal(arrows: list[dict[str, object]]) -> None:
    keys = ArrowKeys()
    with cut(text_of(*({"ts": at} | end for at, end in enumerate(arrows))), row_group=7) as columns:
        numbers = np.concatenate([keys.of(part, np.arange(len(part))) for part in columns.parts.read(SCANNED)])
    assert numbers.all()
    for (one, first), (other, second) in product(zip(arrows, numbers.tolist(), strict=True), repeat=2):
        is_same = all(repr(one.get(member)) == repr(other.get(member)) for member in ("id", "cat", "name"))
        assert (first == second) == is_same

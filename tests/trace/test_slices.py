"""Slice references round-trip through text, and malformed ones are refused."""

import pytest

from service.trace.errors import BadSlice
from service.trace.slices import SliceReference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("position:0", SliceReference("position", 0)),
        ("position:123", SliceReference("position", 123)),
        ("id:456", SliceReference("id", 456)),
        ("at:1695000000123:aten::mm", SliceReference("at", 1695000000123, "aten::mm")),
        ("at:-5:a@b, at:7:c", SliceReference("at", -5, "a@b, at:7:c")),
        ("at:9223372036854775807: ", SliceReference("at", (1 << 63) - 1, " ")),
    ],
)
def test_slice_reference_round_trips(text: str, reference: SliceReference) -> None:
    assert SliceReference.parsed(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "5", "position", "position:", "position:-1", "position:1.5", "position:1:x", "position: 1", "id:²",
        "id:abc", "id:-1", "at:5", "at:5:", "at::name", "at:x:name", "name:5", "position:9223372036854775808",
        "id:99999999999999999999", "POSITION:5",
    ],
)  # fmt: skip
def test_malformed_slice_reference_is_refused_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(BadSlice, match="write position:POSITION, at:TIME_NS:NAME or id:ID") as refused:
        SliceReference.parsed(text)
    assert refused.value.extra["forms"] == ("position:POSITION", "at:TIME_NS:NAME", "id:ID")

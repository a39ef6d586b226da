"""The grammar accepts exactly the texts that json accepts, and distinguishes incomplete texts from invalid ones."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.streaming.scan.grammar import BAD, DEPTH_MAX, LONE, MORE, OK, PLAIN, new_stack, string_end, value_end
from service.streaming.scan.machine import PADDING
from service.streaming.scan.reader import padded
from tests.conftest import scaled

STACK = new_stack()


def read(text: bytes) -> tuple[int, int]:
    """Return the end of the first value, and the verdict."""
    return value_end(padded(text), 0, len(text), STACK)


def takes(text: bytes) -> bool:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        json.loads(text.decode("latin-1"), parse_constant=refuse)
    except ValueError:
        return False
    return True


characters = '{}[],:"\\-+.eEu019aF \n\t\r\0\x1f'
words = ["null", "true", "false", '""', '"a":', "\\u00e9", "\\n", "tru", "Z", "é", "x" * 17]
tokens = st.sampled_from([*characters, *words])
texts = st.lists(tokens, min_size=1, max_size=14).map("".join)
sound = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


@given(texts.map(str.lstrip).filter(bool))
@settings(max_examples=scaled(1000))
@example("01")
@example("-")
@example("1.e5")
@example('"\\u12g4"')
@example('{"a":1,}')
@example("[1,]")
@example("[,1]")
@example('{"a" 1}')
@example("nul")
def test_value_of_the_grammar_is_valid_json(text: str) -> None:
    raw = text.encode() + b" "

    at, verdict = read(raw)

    if verdict == OK:
        assert takes(raw[:at])
        assert not raw[:at].endswith(b" ")
    else:
        assert not takes(raw)
    if verdict == BAD:
        assert not any(takes(raw[: at + 1] + suffix) for suffix in (b"", b'"', b"0", b"]", b"}", b"1}", b'"}'))


@given(sound, st.sampled_from([None, 0, 3]), st.booleans())
@settings(max_examples=scaled(150))
def test_valid_json_is_read_to_its_end_and_every_cut_is_incomplete(value: Any, indent: int, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain).encode()

    assert read(text + b"]") == (len(text), OK)
    for end in range(1, len(text)):
        at, verdict = read(text[:end])
        assert verdict == MORE
        assert at <= end + PADDING


@pytest.mark.parametrize("length", range(40))
def test_strings_of_every_length_end_at_their_quote(length: int) -> None:
    for tail in (b'"', b'\\"x"', b'\\u00e9"', b'\x1f"', b"\\", b""):
        text = b"x" * length + tail
        at, verdict, _ = string_end(padded(text), 0, len(text))

        expected = {b'"': OK, b'\\"x"': OK, b'\\u00e9"': OK, b'\x1f"': BAD}.get(tail, MORE)
        assert verdict == expected
        assert verdict != OK or at == len(text) - 1
        assert verdict != BAD or at == length


@pytest.mark.parametrize(
    ("string", "how"),
    [
        ("plain", PLAIN),
        ("\\ud83d\\ude00", 1),
        ("\\uD83D\\uDE00 and \\n", 1),
        ("\\ud83d", LONE),
        ("\\ude00", LONE),
        ("\\ud83d\\ud83d\\ude00", LONE),
        ("\\ud83d\\u0041", LONE),
        ("\\ud83dx\\ude00", LONE),
        ("\\ud83d\\n\\ude00", LONE),
        ("\\ud83d" + "x" * 16 + "\\ude00", LONE),
        ("\\\\ud83d", 1),
    ],
)
def test_half_a_surrogate_pair_is_reported(string: str, how: int) -> None:
    text = f'{string}"'.encode()

    assert string_end(padded(text), 0, len(text)) == (len(text) - 1, OK, how)


def test_nesting_is_limited() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        inner = b"1" if opening != b"[" else b""
        assert read(opening * DEPTH_MAX + inner + closing * DEPTH_MAX)[1] == OK
        assert read(opening * (DEPTH_MAX + 1) + inner + closing * (DEPTH_MAX + 1))[1] == BAD

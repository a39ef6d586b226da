"""Name patterns match in bounded time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cutting.names import NamePatterns
from service.trace.errors import BadSelection
from tests.brute import matches


def match(pattern: str, name: str) -> bool:
    (flag,) = NamePatterns([pattern]).match([name])
    return flag


@given(st.text("a*?.[\\^$\n", max_size=6), st.text("aA.[\\^$\n*?", max_size=6))
def test_pattern_matches_the_whole_name(pattern: str, name: str) -> None:
    assert match(pattern, name) == matches(pattern, name)


@given(st.text(max_size=8), st.text(max_size=8))
def test_text_without_wildcards_matches_itself(before: str, after: str) -> None:
    name = before + after
    assert match(before.replace("*", "?") + "*", name) == matches(before.replace("*", "?") + "*", name)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a*", "ab", True),
        ("a*", "ba", False),
        ("?", "a", True),
        ("?", "é", True),
        ("?", "", False),
        ("*", "", True),
        ("*b*", "a\nb\nc", True),
        ("a?", "ab\n", False),
        ("a.c*", "abc", False),
        ("re:b", "abc", True),
        ("re:^b", "abc", False),
        ("re:a|c", "c", True),
        ("re:(?i)NCCL", "ncclDevKernel", True),
    ],
)
def test_wildcards_and_regexes_match_names(pattern: str, name: str, matches: bool) -> None:
    assert match(pattern, name) == matches


def test_name_matches_if_any_name_or_pattern_does() -> None:
    patterns = NamePatterns(["a*", "re:z$", "exact", "a"])
    assert patterns.match(["abc", "xyz", "exact", "exactly", ""]) == [True, True, True, False, False]
    assert patterns.match(["exactly", "new", "abc"]) == [False, False, True]


@pytest.mark.parametrize(
    "pattern",
    ["re:(?=a)", r"re:(a)\1", "re:(a{1000}){1000}", "re:[", "re:\ud800", "\ud800*"],
)
def test_regex_that_re2_rejects_is_refused(pattern: str) -> None:
    with pytest.raises(BadSelection, match="RE2"):
        NamePatterns([pattern])


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 499 + "Q", "*" * 999 + "a", "?*" * 499 + "Q", "re:(a*)*b", "re:(a|aa)+$Q", "re:(.*a){100}Q", "re:^(a+)+$"],
)
def test_patterns_match_in_linear_time(pattern: str) -> None:
    patterns = NamePatterns([pattern])
    names = ["a" * 10_000 + str(number) for number in range(20)]
    start = time.process_time()
    assert patterns.match(names) == [False] * 20
    assert time.process_time() - start < 30  # backtracking would exceed any timeout

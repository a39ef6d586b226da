"""Rules: what is written means one thing, and what is not understood is refused with what exists."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracedock.gate.rules import SUBJECTS, RuleError, matches, parse_figure, parse_rule


@pytest.mark.parametrize(
    ("text", "name", "pattern", "quantity", "statistic"),
    [
        ("step.median", "step", None, "", "median"),
        ("memory.mean", "memory", None, "", "mean"),
        ("kernel.sum", "kernel", None, "sum", "median"),
        ("kernel:nccl*.sum", "kernel", "nccl*", "sum", "median"),
        ("kernel:nccl*.sum.mean", "kernel", "nccl*", "sum", "mean"),
        ("kernel:nccl*.mean", "kernel", "nccl*", "mean", "median"),
        ("kernel:sum.mean", "kernel", "sum", "mean", "median"),
        ("kernel:void at::f<4, a.b>(int).max", "kernel", "void at::f<4, a.b>(int)", "max", "median"),
        ("op:aten::mm.device", "op", "aten::mm", "device", "median"),
        ("annotation:enumerate(DataLoader)*.sum", "annotation", "enumerate(DataLoader)*", "sum", "median"),
    ],
)
def test_figure_has_its_parts(text: str, name: str, pattern: str | None, quantity: str, statistic: str) -> None:
    figure = parse_figure(text)
    assert (figure.name, figure.pattern, figure.quantity, figure.statistic) == (name, pattern, quantity, statistic)


@pytest.mark.parametrize(
    ("text", "base", "limit"),
    [
        ("step.median<+3%", 1000, 1030),
        ("step.median < +3 %", 1000, 1030),
        ("step.median<-2.5%", 1000, 975),
        ("step.median<+0%", 7, 7),
        ("step.median<+5us", 1000, 6000),
        ("step.median<+1.5ms", 0, 1_500_000),
        ("memory.median<+1GiB", 5, 5 + (1 << 30)),
        ("kernel:a<4>*.count<+2", 3, 5),
        ("kernel:a<4>*.count<+10%", 0, 0),
        ("step.median<+0.1%", 2**62, Fraction(2**62 * 1001, 1000)),
    ],
)
def test_tolerance_gives_the_exact_limit(text: str, base: int, limit: int) -> None:
    assert parse_rule(text).limit(base) == limit


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "has no '<'"),
        ("step.median", "has no '<'"),
        ("step.median<", "like +3% or +5ns"),
        ("step.median<3%", "like +3% or +5ns"),
        ("step.median<+3", "like +3% or +5ns"),
        ("step.median<+3GB", "like +3% or +5ns"),
        ("memory.median<+3ms", "like +3% or +5B"),
        ("kernel.count<+3ms", "like +3% or +5"),
        ("step.median<+nan%", "like +3%"),
        ("step.median<+1e400%", "like +3%"),
        ("step.median<-101%", "less than nothing"),
        ("steps.median<+3%", "the subjects are step, busy"),
        ("step.p90<+3%", "step.median, step.mean"),
        ("step.max<+3%", "step.median, step.mean"),
        ("step:x.median<+3%", "step.median, step.mean"),
        ("kernel:nccl*<+3%", "kernel:PATTERN.sum"),
        ("kernel:nccl*.median<+3%", "kernel:PATTERN.sum"),
        ("kernel:.sum<+3%", "kernel:PATTERN.sum"),
        ("kernel.nccl.sum<+3%", "kernel:PATTERN.sum"),
        ("op:x.max<+3%", "op:PATTERN.device"),
    ],
)
def test_rule_that_is_not_understood_is_refused_with_what_exists(text: str, hint: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_rule(text)
    assert hint in str(refused.value)


@given(text=st.text(max_size=40))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        rule = parse_rule(text)
    except RuleError:
        return
    assert rule.figure.name in SUBJECTS


@given(name=st.text(max_size=12))
def test_pattern_of_a_name_matches_it(name: str) -> None:
    literal = name.replace("*", "?")
    assert matches(literal, name)
    assert matches("*", name)
    assert matches(f"{literal}*", f"{name}tail")
    assert not matches(f"{literal}?", name)


def test_pattern_takes_brackets_and_case_literally() -> None:
    assert matches("a[0]*", "a[0]b")
    assert not matches("a[0]*", "a0b")
    assert not matches("NCCL*", "ncclKernel")

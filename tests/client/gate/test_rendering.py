"""Forms of a verdict: each is well formed whatever the names are, and says the same."""

import json
import xml.etree.ElementTree as ET
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracedock.gate.rendering import as_json, as_junit, as_lines, as_markdown, as_table, shown
from tracedock.gate.rules import parse_figure, parse_rule
from tracedock.gate.runs import Run
from tracedock.gate.verdicts import Verdict, judge

from tests.client.gate.test_verdicts import FAST, SLOW, kernels, lasting, run

URL = "http://127.0.0.1:8700"


def stored(of: Run, name: str, kind: str = "trace") -> Run:
    return Run(name, of.tables, kind, "0123456789ab", [(name, "0123456789ab")])


def verdict(*rules: str, name: str = "slow") -> Verdict:
    return judge([*map(parse_rule, rules)], stored(FAST, "fast"), stored(SLOW, name, "group"))


def test_table_shows_values_with_units_and_the_conclusion() -> None:
    lines = as_table(verdict("step.median<+3%", "memory.median<+1%")).splitlines()
    assert lines[0].split() == ["outcome", "rule", "baseline", "candidate", "change", "p", "steps"]
    assert lines[1].split() == [
        "regression",
        "step.median<+3%",
        "102",
        "ns",
        "112",
        "ns",
        "+9.80",
        "%",
        "0.0079",
        "5,",
        "5",
    ]
    assert lines[3] == "step.median<+3% fails: 102 ns to 112 ns (+9.80 %), Mann-Whitney U test, p = 0.0079."


def test_lines_have_exact_values() -> None:
    huge = 2**61 + 1
    text = as_lines(judge([parse_rule("step.mean<+1%")], lasting("a", *[huge] * 3), lasting("b", *[huge] * 3)))
    names, values = (line.split("\t") for line in text.splitlines())
    fields = dict(zip(names, values, strict=True))
    assert (fields["baseline"], fields["unit"], fields["rank"]) == (str(huge), "ns", r"\N")


def test_json_has_links_and_every_number() -> None:
    document = json.loads(as_json(verdict("step.median<+3%"), URL))
    assert (document["outcome"], document["level"], document["warmup"]) == ("regression", 0.05, 1)
    assert document["compare"] == f"{URL}/compare?base=0123456789ab&other=run%3A0123456789ab"
    assert document["candidate"]["url"] == f"{URL}/groups/0123456789ab"
    [rule] = document["rules"]
    assert (rule["baseline"], rule["candidate"], rule["limit"]) == (102, 112, 105.06)
    assert (rule["p_value"], rule["test"]) == (pytest.approx(1 / 252), "Mann-Whitney U test")


@pytest.mark.parametrize(("undecided", "element"), [("error", "error"), ("skipped", "skipped"), ("failure", "failure")])
def test_junit_has_a_case_for_each_rule(undecided: str, element: str) -> None:
    few = judge([parse_rule("step.median<+3%")], lasting("a", 1), lasting("b", 2))
    suite = ET.fromstring(as_junit(few, undecided=undecided)).find("testsuite")
    assert suite is not None
    [case] = suite.findall("testcase")
    assert case.find(element) is not None
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    plural = {"error": "errors", "failure": "failures"}.get(element, element)
    assert counts == {"tests": "1", "failures": "0", "errors": "0", "skipped": "0"} | {plural: "1"}


def test_markdown_links_the_runs_and_the_comparison() -> None:
    text = as_markdown(verdict("step.median<+3%"), URL)
    assert text.startswith(
        f"### Regression: [slow]({URL}/groups/0123456789ab) against [fast]({URL}/traces/0123456789ab)"
    )
    assert f"[compare]({URL}/compare?base=0123456789ab&other=run%3A0123456789ab)" in text
    assert f"[candidate slow in Perfetto]({URL}/api/v1/traces/0123456789ab/perfetto)" in text
    assert "](" not in as_markdown(judge([parse_rule("step.median<+3%")], FAST, SLOW)), "files have no links"


@given(name=st.text(min_size=1, max_size=20))
def test_names_do_not_break_any_form(name: str) -> None:
    judged = judge(
        [parse_rule("kernel.sum<+1%")], kernels(name, 1, 2, 3, kernel=name), stored(kernels("b", 1, 2, 3), name)
    )
    suite = ET.fromstring(as_junit(judged, URL)).find("testsuite")
    assert suite is not None
    assert json.loads(as_json(judged, URL))["candidate"]["name"] == name
    assert all(line.isprintable() for line in as_table(judged).splitlines())
    rows = [line for line in as_markdown(judged, URL).splitlines() if line.startswith("| ")]
    assert len(rows) == 2


@given(pattern=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip))
def test_markdown_row_of_any_rule_has_seven_cells(pattern: str) -> None:
    steps = [dict(row) for row in FAST.tables["steps"]]
    work = [
        {"rank": 0, "step": step, "kind": "kernel", "type": "COMP", "name": "k", "count": 1, "sum_ns": 1, "max_ns": 1}
        for step in range(6)
    ]
    baseline = run("a", steps, work)
    rule = parse_rule(f"kernel:*{pattern}*.sum<+1%") if "." not in pattern else parse_rule("kernel.sum<+1%")
    if not rule.figure.matches("k"):
        return
    [_, _, _, _, row, *_] = as_markdown(judge([rule], baseline, baseline)).splitlines()
    assert row.replace("\\|", "").count("|") == 8


@pytest.mark.parametrize(
    ("value", "figure", "text"),
    [
        (0, "step.median", "0 ns"),
        (999, "step.median", "999 ns"),
        (1_234_567, "step.median", "1.235 ms"),
        (Fraction(3, 2), "step.median", "1.5 ns"),
        (12_345_678_901_234, "step.median", "12,345.7 s"),
        (70 * 10**9, "memory.median", "70 GB"),
        (512, "memory.median", "512 B"),
        (1_234_567, "kernel.count", "1,234,567"),
        (None, "step.median", "-"),
    ],
)
def test_value_has_a_unit_that_people_read(value: Fraction | None, figure: str, text: str) -> None:
    assert shown(value, parse_figure(figure)) == text

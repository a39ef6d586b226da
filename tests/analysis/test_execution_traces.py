"""An execution trace of the same capture gives operators the shapes that the trace lacks; any other is not used."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.analysis.answers import Answer, answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.formats.execution_trace import ExecutionTraceFile
from service.trace.selection import Selection
from tests.conftest import DATA, needs_shared
from tests.formats.test_execution_trace import ROOT, node, text_of
from tests.formats.test_unread import INPUTS

Event = dict[str, Any]
SHAPES: dict[str, Any] = {"input_shapes": [[2, 3], []], "input_types": ["Tensor(float)", "Int"]}
OPERATORS = question_of("operators")


def operator(number: int, name: str = "aten::mm", **args: Any) -> Event:
    """Return an operator with an External id."""
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": number * 10, "dur": 5,
        "args": {"External id": number, **args},
    }  # fmt: skip


def shaped(number: int, rf_id: int, name: str = "aten::mm") -> Event:
    """Return a node with a tensor of 2 x 3."""
    return node(number, rf_id=rf_id, name=name, **SHAPES)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(read_once: Callable[[Path | str], Source], tmp_path: Path) -> Ask:
    """Return a function that asks for operators of a trace beside execution traces, given as texts or files."""

    def operators(
        trace: Sequence[Event] | Path,
        *execution_traces: str | Path,
        selection: Selection | None = None,
        group_by: str = "shapes",
    ) -> Answer:
        source = read_once(trace if isinstance(trace, Path) else json.dumps({"traceEvents": list(trace)}))
        files = []
        for number, content in enumerate(execution_traces):
            path = content if isinstance(content, Path) else tmp_path / f"{number}.json"
            if isinstance(content, str):
                path.write_text(content)
            files.append(ExecutionTraceFile(path, path.name))
        given = AnalysisInput(source.columns, source.summary, selection, execution_traces=tuple(files))
        parameters = parameters_of(OPERATORS, {"group_by": group_by})
        return answer_question(OPERATORS, parameters, [given], ReadingCache(tmp_path / "spill"))

    return operators


def shapes_of(answer: Answer) -> dict[str, str]:
    """Return the shapes of each operator, which has one row."""
    rows = answer.tables["operators"].to_pylist()
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row["shapes"] for row in rows}


def calls_by_shape(answer: Answer) -> dict[tuple[str, str], int]:
    """Return the calls of each operator and shapes."""
    rows = answer.tables["operators"].to_pylist()
    return {(row["name"], row["shapes"]): row["calls"] for row in rows}


def matches_of(answer: Answer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer.tables["execution_traces"].to_pylist()
    return rows


def test_operators_gain_the_shapes_that_they_lack(ask: Ask) -> None:
    events = [
        operator(1, "aten::mm"),
        operator(2, "aten::add", **{"Input Dims": [[7]]}),
        operator(3, "aten::relu"),
        operator(4, "aten::none"),
    ]
    nodes = ROOT, shaped(2, 1), shaped(3, 2, "aten::add"), node(4, rf_id=3, name="aten::relu")
    answer = ask(events, text_of(*nodes))
    assert shapes_of(answer) == {
        "aten::mm": "[[2, 3], []]",
        "aten::add": "[[7]]",  # the trace's own shapes stay
        "aten::relu": "[]",
        "aten::none": "[]",
    }
    assert answer.notes == [
        "1 of 3 operators have their shapes from the execution trace 0.json, not from the trace; 3 of 3 names agree."
    ]
    [match] = matches_of(answer)
    assert (match["used"], match["nodes"], match["joined"], match["same_name"], match["gained"]) == ("yes", 4, 3, 3, 1)


def test_execution_trace_has_the_shapes_of_its_capture(ask: Ask, tmp_path: Path) -> None:
    capture = DATA / "cuda_train_steps.pt.trace.json.gz"
    document = json.loads(gzip.decompress(capture.read_bytes()))
    for event in document["traceEvents"]:
        event.get("args", {}).pop("Input Dims", None)
    (tmp_path / "without.json").write_text(json.dumps(document))
    text = gzip.decompress((DATA / "figures/cuda_train_steps.execution_trace.json.gz").read_bytes()).decode()

    answer, expected = ask(tmp_path / "without.json", text), ask(capture)

    [match] = matches_of(answer)
    assert match["joined"] == match["same_name"] == 2638
    assert calls_by_shape(answer) == calls_by_shape(expected)
    assert len({shapes for _, shapes in calls_by_shape(answer)}) > 100


def test_record_function_id_goes_before_the_external_id_unless_it_is_0(ask: Ask) -> None:
    events = [
        operator(1, "aten::mm", **{"Record function id": 70}),
        operator(2, "aten::add", **{"Record function id": 0}),
    ]
    answer = ask(events, text_of(ROOT, shaped(2, 70), shaped(3, 2, "aten::add"), shaped(4, 1, "aten::relu")))
    assert shapes_of(answer) == dict.fromkeys(("aten::mm", "aten::add"), "[[2, 3], []]")
    assert matches_of(answer)[0]["joined"] == 2


@pytest.mark.parametrize(("equal", "used"), [(19, "yes"), (18, "no")])
def test_execution_trace_is_used_if_95_percent_of_the_names_agree(equal: int, used: str, ask: Ask) -> None:
    events = [operator(number) for number in range(1, 21)]
    nodes = [shaped(number + 1, number, "aten::mm" if number <= equal else "other") for number in range(1, 21)]
    answer = ask(events, text_of(ROOT, *nodes))
    [match] = matches_of(answer)
    assert (match["used"], match["joined"], match["same_name"]) == (used, 20, equal)
    shapes = {row["shapes"]: row["calls"] for row in answer.tables["operators"].to_pylist()}
    assert shapes == ({"[[2, 3], []]": 19, "[]": 1} if used == "yes" else {"[]": 20})
    if used == "no":
        [note] = answer.notes
        assert note == (
            "The execution trace 0.json is not used. It is of another capture: 18 of 20 operators that have the id of a"
            " node have its name, too (90.0 %), and 95 % are required."
        )


def test_whole_trace_decides_for_a_selection(ask: Ask) -> None:
    events = [operator(number) for number in range(1, 21)]
    other = [shaped(number + 1, number, "aten::mm" if number == 1 else "other") for number in range(1, 21)]
    same = [shaped(number + 1, number) for number in range(1, 21)]
    first = Selection.parsed(json.dumps({"window": {"end_ns": 16_000}}))
    assert matches_of(ask(events, text_of(ROOT, *other), selection=first))[0]["joined"] == 20
    answer = ask(events, text_of(ROOT, *same), selection=first)
    assert [(row["shapes"], row["calls"]) for row in answer.tables["operators"].to_pylist()] == [("[[2, 3], []]", 1)]


def test_first_execution_trace_of_the_capture_is_used(ask: Ask, tmp_path: Path) -> None:
    fitting, other = text_of(ROOT, shaped(2, 1)), text_of(ROOT, shaped(2, 1, "other"))
    nothing, damaged = text_of(ROOT, shaped(2, 99)), text_of(ROOT)[:-9]
    answer = ask([operator(1)], damaged, nothing, other, fitting, fitting)
    assert shapes_of(answer) == {"aten::mm": "[[2, 3], []]"}
    assert [match["used"] for match in matches_of(answer)] == ["no", "no", "no", "yes"]
    reasons = [match["reason"] for match in matches_of(answer)]
    assert "no valid JSON" in reasons[0]
    assert "None of its ids" in reasons[1]
    assert "another capture" in reasons[2]
    assert len(answer.notes) == 4
    assert ask([operator(1)], tmp_path / "gone.json").notes == [
        "The execution trace gone.json is not used. It was deleted meanwhile."
    ]


def test_answer_without_shapes_reads_no_execution_trace(ask: Ask) -> None:
    answer = ask([operator(1)], "damaged", group_by="name")
    assert (matches_of(answer), answer.notes) == ([], [])
    assert ask([operator(1)]).notes == []


@needs_shared
def test_real_pair_joins_as_its_golden_says(ask: Ask) -> None:
    golden = json.loads((INPUTS / "et_simple_add.golden.json").read_text())
    answer = ask(INPUTS / "et_simple_add_kineto.json", INPUTS / "et_simple_add.json")
    [match] = matches_of(answer)
    assert match["nodes"] == golden["nodes"]
    assert match["joined"] == golden["kineto_ops"] == golden["joined_by_external_id_eq_rf_id"]
    assert match["same_name"] == golden["joined_with_same_name"]
    assert match["gained"] == golden["ops_that_gain_shapes"]
    [work] = [work for work in golden["gpu_work"] if work["op"]]
    assert json.dumps(work["input_shapes"]) in {
        row["shapes"] for row in answer.tables["operators"].to_pylist() if row["name"] == work["op"]
    }
    [note] = answer.notes
    assert note == (
        "Rank 0: 28 of 36 operators have their shapes from the execution trace et_simple_add.json, not from the trace;"
        " 36 of 36 names agree."
    )


@needs_shared
def test_execution_trace_of_another_real_capture_is_not_used(ask: Ask) -> None:
    answer = ask(INPUTS / "et_simple_add_kineto.json", INPUTS / "et_chakra_schema_trimmed.json")
    [match] = matches_of(answer)
    assert (match["used"], match["joined"], match["same_name"]) == ("no", 32, 0)
    assert {row["shapes"] for row in answer.tables["operators"].to_pylist()} == {"[]"}

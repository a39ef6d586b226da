"""Properties of every question: odd traces yield an answer or a reason, in any order of events and ranks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from service.analysis.answers import answer_question, applicable
from service.analysis.catalogue import QUESTIONS, question_of
from service.analysis.names import OF_SNAPSHOTS
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.analysis.table import schema_of
from service.cutting.source import Source
from service.trace.errors import BadAnalysisRequest, NotApplicable, UnknownAnalysis, UnknownChoice
from service.trace.selection import Selection
from tests.analysis.conftest import AnswerRows, Ask
from tests.traces import TraceShape, trace_chunks

KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
ON_GPU = {"device": 0, "stream": 7, "correlation": 3, "External id": 4}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 4, "dur": 2}
OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 3, "dur": 9}
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 40}
MEMORY = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
OF_EVENTS = [name for name in QUESTIONS if name not in OF_SNAPSHOTS]
"""Questions to which a trace of the profiler can have answers; tests of their own ask the others."""
LATEST = 9_007_199_254_740_992
Event = dict[str, Any]

ODD: dict[str, list[Event]] = {
    "nothing": [],
    "one slice on the host": [OP],
    "one kernel": [KERNEL],
    "one kernel that tells all": [{**KERNEL, "args": ON_GPU}],
    "nothing takes time": [
        {**event, "ts": 10, "dur": 0, "args": ON_GPU}
        for event in (KERNEL, {**KERNEL, "cat": "gpu_memcpy"}, CALL, OP, STEP)
    ],
    "negative durations": [{**event, "dur": -5, "args": ON_GPU} for event in (KERNEL, CALL, OP, STEP)],
    "late": [{**event, "ts": LATEST, "args": ON_GPU} for event in (KERNEL, CALL, OP, STEP)],
    "long": [{**event, "dur": LATEST, "args": ON_GPU} for event in (KERNEL, CALL, OP, STEP, KERNEL)],
    "early": [{**event, "ts": -1_000_000, "args": ON_GPU} for event in (KERNEL, CALL, OP, STEP)],
    "no times": [{key: value for key, value in event.items() if key != "ts"} for event in (KERNEL, CALL, OP)],
    "no durations": [
        {key: value for key, value in event.items() if key != "dur"} for event in (KERNEL, CALL, OP, STEP)
    ],
    "no names": [{**event, "name": None} for event in (KERNEL, CALL, OP, STEP)],
    "arguments of other kinds": [
        {**event, "args": dict.fromkeys((*ON_GPU, "Bytes", "bytes", "Total Allocated", "grid", "block"), "many")}
        for event in (KERNEL, CALL, OP, MEMORY, {**KERNEL, "cat": "gpu_memcpy"})
    ],
    "arguments that are no object": [{**event, "args": [1, None, "x"]} for event in (KERNEL, CALL, OP, STEP, MEMORY)],
    "NaN": [{**event, "args": {**ON_GPU, "Bytes": float("nan"), "est. achieved occupancy %": float("inf")}}
            for event in (KERNEL, OP, MEMORY)],
    "pids and tids are text": [{**event, "pid": "p", "tid": "t", "args": ON_GPU} for event in (KERNEL, CALL, OP, STEP)],
    "large ids": [{**event, "args": dict.fromkeys(ON_GPU, 2 ** 63 - 1)} for event in (KERNEL, CALL, OP)],
    "2021": [
        {**KERNEL, "cat": "Kernel", "args": ON_GPU}, {**CALL, "cat": "Runtime", "args": ON_GPU},
        {**OP, "cat": "Operator", "args": ON_GPU}, {**KERNEL, "cat": "Memcpy", "ts": 30, "args": ON_GPU},
        {**STEP, "cat": "Operator"},
    ],
    "steps overlap": [
        STEP, {**STEP, "name": "ProfilerStep#2", "ts": 5}, {**STEP, "name": "ProfilerStep#2", "ts": 7}, KERNEL, CALL, OP
    ],
    "steps alone": [STEP, {**STEP, "name": "ProfilerStep#2", "ts": 50}],
}  # fmt: skip


def text_of(events: list[Event]) -> str:
    return json.dumps({"traceEvents": events})


def answer_or_reason(ask: Ask, name: str, events: list[Event]) -> AnswerRows | None:
    """Return an answer with rows in at least one table, or None if the question is refused with a full sentence."""
    try:
        answer = ask(name, *[events] * QUESTIONS[name].min_traces)
    except NotApplicable as error:
        reason = error.detail
    else:
        assert any(answer.values())
        return answer
    assert reason.endswith(".")
    return None


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("events", ODD.values(), ids=ODD)
def test_odd_trace_yields_an_answer_or_a_reason(name: str, events: list[Event], ask: Ask) -> None:
    answer_or_reason(ask, name, events)


@pytest.mark.system
@pytest.mark.parametrize("name", QUESTIONS)
def test_many_streams_only_add_rows(name: str, ask: Ask, streams: list[Event]) -> None:
    answer_or_reason(ask, name, streams)


@pytest.fixture(scope="module")
def streams() -> list[Event]:
    """A kernel on each of 100,000 streams."""
    return [
        {**KERNEL, "ts": at, "tid": at, "args": {"device": at % 9, "stream": at, "correlation": at}}
        for at in range(100_000)
    ]


@pytest.mark.parametrize("name", OF_EVENTS)
def test_tables_have_the_described_columns(name: str, ask: Ask) -> None:
    question, events = QUESTIONS[name], generated(0)
    answer = ask(name, *[events] * QUESTIONS[name].min_traces)
    assert [*answer] == [*question.tables]
    for table, columns in question.tables.items():
        rows: pa.Table = answer.answer.tables[table]
        assert rows.schema.equals(schema_of(columns), check_metadata=True)
        assert all(column.description for column in columns)


def generated(rank: int) -> list[Event]:
    """Return a trace to which every question of `OF_EVENTS` applies.

    Its steps load data in a module, and one op launches all work.
    """
    events: list[Event] = json.loads(b"".join(trace_chunks(TraceShape(steps=3, rank=rank, seed=rank))))["traceEvents"]
    for step in [
        event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]:
        within = {**step, "ts": step["ts"] + 1, "dur": step["dur"] - 2}
        events.append({**within, "cat": "python_function", "name": "nn.Module: Linear_0"})
        loads = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        events.append({**within, "name": loads, "ts": step["ts"] + 2, "dur": 1})
        events.append({**within, "cat": "cpu_op", "name": "train", "ts": step["ts"] + 3, "dur": step["dur"] - 6})
        events.append(
            {**within, "cat": "cuda_profiler_range", "name": "gemm", "pid": 0, "tid": 0, "args": {"inst.sum": 2}}
        )
    return events


def sorted_rows(answer: AnswerRows) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows)) for name, rows in answer.items()}


@pytest.mark.parametrize("name", [name for name in OF_EVENTS if name != "compare"])
def test_answers_do_not_depend_on_the_order_of_events(name: str, ask: Ask) -> None:
    events = generated(0)
    shuffled = Random(5).sample(events, len(events))
    assert sorted_rows(ask(name, shuffled)) == sorted_rows(ask(name, events))


@pytest.mark.parametrize("name", [name for name in OF_EVENTS if name != "compare"])
def test_answers_do_not_depend_on_the_order_of_ranks(
    name: str, read_once: Callable[[Path | str], Source], tmp_path: Path
) -> None:
    question = question_of(name)
    trace = []
    for rank in range(3):
        source = read_once(text_of(generated(rank)))
        trace.append(AnalysisInput(source.columns, replace(source.summary, rank=rank), None, f"rank{rank}"))
    answers = [
        answer_question(question, parameters_of(question, {}), traces, ReadingCache(tmp_path))
        for traces in (trace, [trace[2], trace[0], trace[1]])
    ]
    result = [sorted_rows(AnswerRows(answer)) for answer in answers]
    assert result[0] == result[1]


# -- requests -------------------------------------------------------------------------------------------------------


def test_ranks_without_an_answer_are_skipped_with_a_reason(ask: Ask) -> None:
    answer = ask("temporal_breakdown", [KERNEL], [OP])
    assert len(answer["breakdown"]) == 1
    assert [row["reason"] for row in answer.answer.skipped] == ["Nothing in this trace runs on a GPU."]


def test_ranks_without_the_selected_are_skipped_with_a_reason(ask: Ask) -> None:
    on_devices = [[{**KERNEL, "args": {"device": device, "stream": 7}}] for device in (0, 1)]
    answer = ask("temporal_breakdown", *on_devices, selection=Selection(devices=[1]))
    assert [row["device"] for row in answer["breakdown"]] == [1]
    assert [row["reason"] for row in answer.answer.skipped] == ["The trace has no device '1'; it has 0."]
    with pytest.raises(UnknownChoice, match="no device '2'"):
        ask("temporal_breakdown", *on_devices, selection=Selection(devices=[2]))


def test_comparison_with_a_side_without_an_answer_says_why(ask: Ask) -> None:
    reason = "This trace has no work on a device, and no operators or calls on a host."
    for base, other, name in ((MEMORY, OP, "the base"), (OP, MEMORY, "the other side")):
        with pytest.raises(NotApplicable, match=f"No trace of {name} has what is compared. {reason}"):
            ask("compare", [other], base=[[base]])


def test_question_without_any_answer_is_not_applicable(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("temporal_breakdown", [OP], [OP, OP])


def test_unknown_questions_and_parameters_are_refused(ask: Ask) -> None:
    with pytest.raises(UnknownAnalysis):
        ask("horoscope", [KERNEL])
    with pytest.raises(BadAnalysisRequest, match="memset"):
        ask("temporal_breakdown", [KERNEL], memset="red")
    with pytest.raises(BadAnalysisRequest, match="colour"):
        ask("temporal_breakdown", [KERNEL], colour="red")
    with pytest.raises(BadAnalysisRequest, match="breakdown"):
        ask("temporal_breakdown", [KERNEL]).answer.form("csv", ["none"])


def test_applicable_questions_are_listed_with_their_parameters(
    read_once: Callable[[Path | str], Source], tmp_path: Path
) -> None:
    source = read_once(text_of([OP]))
    listed = applicable(AnalysisInput(source.columns, source.summary), ReadingCache(tmp_path))["analyses"]
    assert [analysis["name"] for analysis in listed] == [*QUESTIONS]
    [temporal] = [analysis for analysis in listed if analysis["name"] == "temporal_breakdown"]
    assert not temporal["applies"]
    assert temporal["parameters"]["memset"]["enum"] == ["mem", "comp"]
    [compare] = [analysis for analysis in listed if analysis["name"] == "compare"]
    assert (compare["reason"] or "").startswith("It takes two sides:")

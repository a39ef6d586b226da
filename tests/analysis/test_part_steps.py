"""Steps of a part of a trace are those of the selection that it was cut by, and of the whole trace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.analysis.answers import answer_question, ranks_of
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.attribution.stored_steps import steps_of_ranks
from service.cutting.envelope import with_facts
from service.cutting.part_steps import recorded_steps
from service.cutting.source import Source
from service.store.folder import ATTRIBUTION, ENVELOPE
from service.store.lists import whole_summary
from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.analysis.test_steps import two_steps
from tests.conftest import DATA
from tests.cutting.choices import Chosen
from tests.cutting.test_children import split
from tests.cutting.test_cut import cut_text, document_of, ingested
from tests.cutting.test_merge import merged

StepsOf = Callable[..., Any]
TRACES = [DATA / f"cuda_{name}.pt.trace.json.gz" for name in ("train_steps", "graph_replays")]
WINDOWS = [(0.1, 0.4), (0.33, 0.34), (0.5, 0.9)]
CHOICES: list[Chosen] = [
    {"steps": [3]},
    {"steps": [2, 4], "categories": ["kernel"], "closure": {"annotations": False}},
    {"categories": ["kernel", "cuda_runtime", "user_annotation"]},
    {"streams": ["0/7"]},
    {"categories": ["kernel"]},
    {"exclude": {"steps": [3]}},
]


@pytest.fixture(scope="module")
def tables_of(tmp_path_factory: pytest.TempPathFactory) -> StepsOf:
    """Return a function that asks a question about a trace, with each rank of a merged one; None without an answer."""
    readings = ReadingCache(tmp_path_factory.mktemp("spill"))

    def ask(source: Source, name: str, selection: Chosen | None = None, **parameters: Any) -> Any:
        question = question_of(name)
        chosen = None if selection is None else Selection.parsed(selection)
        inputs = ranks_of(AnalysisInput(source.columns, source.summary, chosen, source.name))
        try:
            tables = answer_question(question, parameters_of(question, parameters), inputs, readings).tables
        except NotApplicable:
            return None
        return {table: rows.to_pylist() for table, rows in tables.items()}

    return ask


@pytest.fixture(scope="module")
def steps_of(tables_of: StepsOf) -> StepsOf:
    """Return a function that asks about the steps of a trace, with each rank of a merged one; None if it has none."""

    def ask(source: Source, selection: Chosen | None = None, **parameters: Any) -> Any:
        tables = tables_of(source, "steps", selection, **parameters)
        return tables and tables["steps"]

    return ask


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.partition(".")[0])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A trace of a GPU."""
    path = request.param
    return ingested(path.read_bytes(), tmp_path_factory.mktemp("trace") / "it", path.name)


def window(trace: Source, share: tuple[float, float]) -> Chosen:
    """Return the selection of a share of a trace's time."""
    bounds = trace.summary.bounds
    assert bounds is not None
    start, end = (bounds["start_ns"] + int(edge * (bounds["end_ns"] - bounds["start_ns"])) for edge in share)
    return {"window": {"start_ns": start, "end_ns": end}}


def known(trace: Source, selection: Chosen) -> bool:
    """Return whether the trace has all steps that a selection names."""
    numbers = {step["number"] for step in trace.summary.steps}
    return numbers.issuperset(selection.get("steps", []))


@pytest.mark.parametrize("bounds", ["device", "host"])
@pytest.mark.parametrize("rules", ["exact", "tensorboard"])
def test_steps_of_a_cut_are_those_of_its_selection(
    trace: Source, steps_of: StepsOf, tmp_path: Path, bounds: str, rules: str
) -> None:
    """The cut was downloaded and uploaded again."""
    choices = [*(choice for choice in CHOICES if known(trace, choice)), *(window(trace, share) for share in WINDOWS)]
    for number, selection in enumerate(choices):
        cut = ingested(cut_text(trace, selection), tmp_path / f"cut{number}")
        expected = steps_of(trace, selection, bounds=bounds, rules=rules)
        assert expected
        assert steps_of(cut, bounds=bounds, rules=rules) == expected, selection


@pytest.mark.parametrize("selection", [{"streams": ["0/7"]}, {"devices": [0]}, {"categories": ["kernel"]}])
def test_each_answer_about_a_cut_has_the_work_of_the_steps(
    trace: Source, tables_of: StepsOf, tmp_path: Path, selection: Chosen
) -> None:
    """All answers agree: about the cut, about its selection and, of the work that is kept, about the whole trace."""
    cut = ingested(cut_text(trace, selection), tmp_path / "cut")
    for source, chosen in ((trace, selection), (cut, None)):
        figures = tables_of(source, "step_figures", chosen)
        names = {row["name"] for row in figures["work"]}
        whole = tables_of(trace, "step_figures")
        assert figures["work"] == [row for row in whole["work"] if row["name"] in names]
        times = [(row["step"], row["start_ns"], row["end_ns"]) for row in figures["steps"]]
        assert times == [(row["step"], row["start_ns"], row["end_ns"]) for row in whole["steps"]]
        in_steps = sum(row["in_steps"] for row in tables_of(source, "kernel_breakdown", chosen)["attribution"])
        assert in_steps == sum(row["count"] for row in figures["work"]) > 0


def test_steps_of_a_cut_of_a_cut_are_those_of_the_whole_trace(trace: Source, steps_of: StepsOf, tmp_path: Path) -> None:
    row = steps_of(trace)[-1]
    last = ingested(cut_text(trace, {"steps": [row["step"]]}), tmp_path / "last")
    selection = {"exclude": {"categories": ["cpu_op"]}}
    again = ingested(cut_text(last, selection), tmp_path / "again")
    assert steps_of(last) == steps_of(last, {"steps": [row["step"]]}) == [row]
    assert steps_of(again) == steps_of(last, selection)
    assert [(step["start_ns"], step["end_ns"]) for step in steps_of(again)] == [(row["start_ns"], row["end_ns"])]


@pytest.mark.parametrize("by", ["step", "parts"])
def test_merged_pieces_have_the_steps_of_the_whole_trace(
    trace: Source, steps_of: StepsOf, tmp_path: Path, by: Any
) -> None:
    selection = {"straddle": "start"} if by == "parts" else {}
    pieces = split(trace, tmp_path, selection, by, 4 if by == "parts" else None)
    for chosen, piece in pieces:
        assert steps_of(piece) == steps_of(trace, chosen)
    whole = merged([piece for _, piece in pieces], tmp_path / "merged")
    rows = steps_of(trace)
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in steps_of(whole)] == [
        (row["step"], row["start_ns"], row["end_ns"]) for row in rows
    ]
    assert b'"part"' not in (whole.columns / ENVELOPE).read_bytes()


def test_pieces_of_a_merged_trace_have_the_steps_of_each_rank(steps_of: StepsOf, tmp_path: Path) -> None:
    ranks = [
        ingested(
            json.dumps(
                {
                    "distributedInfo": {"rank": rank},
                    "traceEvents": [one | {"dur": one["dur"] + rank} for one in two_steps()],
                }
            ),
            tmp_path / f"rank{rank}",
        )
        for rank in range(2)
    ]
    both = merged(ranks, tmp_path / "both", align="none")
    for by in ("step", "rank"):
        for chosen, piece in split(both, tmp_path / by, {}, by):
            expected = steps_of(both, chosen)
            assert {row["rank"] for row in expected} == ({0, 1} if by == "step" else {*chosen["ranks"]})
            assert steps_of(piece) == expected
    [step_4] = [piece for chosen, piece in split(both, tmp_path / "again", {}, "step") if chosen == {"steps": [4]}]
    assert [(row["rank"], row["start_ns"]) for row in steps_of(step_4)] == [(0, 17_000), (1, 18_000)]
    again = ingested(document_of(step_4), tmp_path / "uploaded")
    assert steps_of(again) == steps_of(step_4)


def test_step_of_a_part_that_an_earlier_version_cut_starts_at_its_annotation(steps_of: StepsOf, tmp_path: Path) -> None:
    whole = ingested(json.dumps({"traceEvents": two_steps()}), tmp_path / "whole")
    document = json.loads(cut_text(whole, {"steps": [4]}))
    for record in (None, 1, {}, {"time": [], "is_chosen": True, "ranks": []}, {"time": [[5, 5]], **record_of(whole)}):
        if record is None:
            del document["tracedock"]["part"]["steps"]
        else:
            document["tracedock"]["part"]["steps"] = record
        part = ingested(json.dumps(document), tmp_path / f"part{len([*tmp_path.iterdir()])}")
        assert [(row["start_ns"], row["end_ns"]) for row in steps_of(part)] == [(10_000, 23_000)]
        assert [row["start_ns"] for row in steps_of(part, {"steps": [4]})] == [10_000]


def record_of(whole: Source) -> dict[str, Any]:
    """Return the record of a step of a trace, without its time."""
    record = json.loads(cut_text(whole, {"steps": [4]}))["tracedock"]["part"]["steps"]
    del record["time"]
    return dict(record)


@pytest.mark.parametrize("change", [{"starts": [1, 2]}, {"starts": [1 << 63]}, {"starts": [1.5]}, {"ends": None}])
def test_malformed_record_is_ignored(tmp_path: Path, change: dict[str, Any]) -> None:
    whole = ingested(json.dumps({"traceEvents": two_steps()}), tmp_path / "whole")
    record = {"time": [[None, None]], **record_of(whole)}
    [rank] = record["ranks"]
    assert recorded_steps(with_facts(b'{"traceEvents": []}', {"part": {"steps": record}}))
    malformed = {**record, "ranks": [{**rank, **change}]}
    assert recorded_steps(with_facts(b'{"traceEvents": []}', {"part": {"steps": malformed}})) is None


def test_steps_are_computed_for_columns_of_an_earlier_version(trace: Source) -> None:
    summary = whole_summary(trace.summary, trace.columns)
    stored = steps_of_ranks(trace.columns, summary)
    path = trace.columns / ATTRIBUTION
    content = path.read_bytes()
    pq.write_table(pq.read_table(path), path)
    assert b"tracedock.steps" not in pq.read_metadata(path).metadata
    computed = steps_of_ranks(trace.columns, summary)
    path.write_bytes(content)
    assert stored.keys() == computed.keys()
    for rank, steps in stored.items():
        assert [column.tolist() for column in steps] == [column.tolist() for column in computed[rank]]

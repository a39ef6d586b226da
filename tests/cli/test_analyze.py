"""The command `analyze`, for traces on the server and for local files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.analysis.catalogue import QUESTIONS
from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Answer, Server, job, json_answer, trace
from tests.http.test_memory_snapshots import stepped
from tests.snapshots import SMALL, pickled
from tests.traces import TraceShape, write_trace

RANK0, RANK1 = "9f2c41d07a3b", "0a1b2c3d4e5f"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("analyze")
    return [write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, steps=2)) for rank in range(2)]


@pytest.fixture
def ranks_server(server: Server) -> Server:
    server.traces = [trace(RANK0, "rank0.json"), trace(RANK1, "rank1.json")]
    return server


SKIPPED = {"rank": 1, "name": "b", "reason": "None."}


def answer(*skipped: dict[str, Any], **tables: list[list[object]]) -> Answer:
    documents = {
        name: {
            "columns": [{"name": "rank", "type": "int", "unit": None, "description": ""}],
            "rows": rows,
            "truncated": False,
        }
        for name, rows in tables.items()
    }
    return json_answer({"analysis": "steps", "tables": documents, "skipped": [*(skipped or [SKIPPED])]})


def test_analyze_takes_several_files_without_a_server(run: Run, files: list[Path]) -> None:
    result = run("analyze", str(files[0]), "temporal_breakdown", "--with", str(files[1]))
    assert result.exit_code == 0, result.stderr
    names, *lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[names.index("rank")] for line in lines] == ["0", "1"]
    assert all(int(line[names.index("span_ns")]) > 0 for line in lines)


def test_file_that_is_named_twice_is_analysed_once(run: Run, files: list[Path]) -> None:
    other_name = files[0].parent / ".." / files[0].parent.name / files[0].name
    again, base = ("--with", str(other_name)), ("--base", str(files[1]))

    def answer(name: str, *options: str) -> tuple[object, object]:
        whole = json.loads(run("analyze", str(files[0]), name, *options, "-f", "json").stdout)
        return whole["tables"], whole["cycles"]

    assert answer("temporal_breakdown", *again) == answer("temporal_breakdown")
    assert answer("compare", *again, *base, *base) == answer("compare", *base)


def test_file_is_compared_with_itself(run: Run, files: list[Path]) -> None:
    assert run("analyze", str(files[0]), "compare", "--with", str(files[0])).exit_code == 0


def test_file_of_a_snapshot_has_the_steps_of_the_trace_beside_it(run: Run, tmp_path: Path) -> None:
    snapshot, trace = tmp_path / "memory_rank0.pickle", tmp_path / "rank0.json"
    snapshot.write_bytes(pickled(SMALL))
    trace.write_bytes(stepped(1))
    result = run("analyze", str(snapshot), "memory_snapshot", "--with", str(trace), "-f", "json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert len(answer["tables"]["steps"]["rows"]) == 2
    assert answer["notes"] == ["Rank 0: steps from trace rank0.json: 2 of its 2 overlap the snapshot's entries."]


def test_analyze_writes_every_format_of_a_file_and_of_a_selection(run: Run, files: list[Path], tmp_path: Path) -> None:
    command = ("analyze", str(files[0]), "temporal_breakdown", "--steps", "4", "--set", "memset=comp")
    document = json.loads(run(*command, "-f", "json").stdout)
    assert document["parameters"]["memset"] == "comp"
    output = tmp_path / "out.arrow"
    assert run(*command, "-f", "arrow", "-o", str(output)).exit_code == 0
    rows = pa.ipc.open_stream(output.read_bytes()).read_all().to_pylist()
    assert [[*row.values()] for row in rows] == document["tables"]["breakdown"]["rows"]


def test_analyze_writes_the_same_table_into_a_file_as_into_a_pipe(run: Run, files: list[Path], tmp_path: Path) -> None:
    command, output = ("analyze", str(files[0]), "temporal_breakdown"), tmp_path / "out.tsv"
    assert run(*command, "-o", str(output)).exit_code == 0
    assert output.read_text() == run(*command).stdout


def test_analyze_without_a_name_lists_analyses(run: Run, files: list[Path]) -> None:
    _, *lines = [line.split("\t") for line in run("analyze", str(files[0])).stdout.splitlines()]
    assert [line[0] for line in lines] == [*QUESTIONS]


def test_analyze_compares_files_with_those_of_a_base(run: Run, files: list[Path]) -> None:
    sides = ("--with", str(files[1]), "--base", str(files[1]), "--base", str(files[0]))
    document = json.loads(run("analyze", str(files[0]), "compare", *sides, "-f", "json").stdout)
    assert document["notes"] == ["The sides are matched by rank: ranks 0, 1."]
    refused = run("analyze", str(files[0]), "steps", "--base", str(files[1]))
    assert (refused.exit_code, "takes no base" in refused.stderr) == (1, True)
    alone = run("analyze", str(files[0]), "compare")
    assert (alone.exit_code, "1 trace was given without a base" in alone.stderr) == (1, True)


def test_analyze_takes_one_cycle_of_files(run: Run, files: list[Path], tmp_path: Path) -> None:
    second = write_trace(tmp_path / "rank0.13.json", TraceShape(steps=2, first_step=13, seed=1))
    command = ("analyze", str(files[0]), "steps", "--with", str(files[1]), "--with", str(second), "-f", "json")

    def tables(*command: str) -> object:
        return json.loads(run(*command).stdout)["tables"]

    assert tables(*command, "--cycle", "1") == tables("analyze", str(second), "steps", "-f", "json")
    unknown = run(*command, "--cycle", "2")
    assert (unknown.exit_code, "the cycles 0 (steps 3 to 4), 1 (steps 13 to 14)." in unknown.stderr) == (1, True)
    sides = ("compare", "--with", str(second), "--base", str(files[0]), "--base", str(second))
    compared = tables("analyze", str(files[0]), *sides, "--base-cycle", "0", "--cycle", "1", "-f", "json")
    same = tables("analyze", str(second), "compare", "--base", str(files[0]), "-f", "json")
    assert compared == same


def test_analyze_compares_two_steps_of_a_file(run: Run, files: list[Path]) -> None:
    first, second = (json.dumps({"steps": [step]}) for step in (3, 4))
    sides = ("--base", str(files[0]), "--base-selection", first, "--selection", second)
    document = json.loads(run("analyze", str(files[0]), "compare", *sides, "-f", "json").stdout)
    table = document["tables"]["each_step"]
    places = [[column["name"] for column in table["columns"]].index(name) for name in ("base_step", "step")]
    assert [[row[place] for place in places] for row in table["rows"]] == [[3, 4]]
    refused = run("analyze", str(files[0]), "compare", "--with", str(files[1]), "--base-selection", first)
    assert (refused.exit_code, "needs a base" in refused.stderr) == (1, True)
    invalid = run("analyze", str(files[0]), "compare", *sides[:2], "--base-selection", '{"step": [1]}')
    assert (invalid.exit_code, "--base-selection" in invalid.stderr) == (2, True)


def test_analyze_sends_all_options_for_a_group(run: Run, ranks_server: Server) -> None:
    ranks_server.groups = [{"id": "00112233aabb", "name": "run", "traces": 2, "created_at": "2026-11-20T18:45:00Z"}]
    ranks_server.script("GET", "/groups/00112233aabb/analysis/compare", answer(main=[[0]]))
    base = ("--base", "rank0.json", "--base-selection", "{}", "--base-cycle", "0")
    result = run("analyze", "run", "compare", *base, "--cycle", "1", "--wait", "5")
    assert result.stdout.splitlines() == ["rank", "0"]
    query = ranks_server.sent("GET")[-1].query
    assert {key: query[key] for key in ("base", "base_selection", "base_cycle", "cycle", "wait")} == {
        "base": RANK0,
        "base_selection": "{}",
        "base_cycle": "0",
        "cycle": "1",
        "wait": "5.0",
    }


def test_skipped_ranks_of_a_merged_trace_are_named(run: Run, ranks_server: Server) -> None:
    skipped = [{"rank": rank, "name": "both", "reason": "None."} for rank in (1, 2)]
    ranks_server.script("GET", f"/traces/{RANK0}/analysis/steps", answer(*skipped, main=[[0]]))
    notes = run("analyze", "rank0.json", "steps").stderr.splitlines()
    assert notes[-2:] == ["both, rank 1: None.", "both, rank 2: None."]


def test_analyze_sends_the_ids_of_traces(run: Run, ranks_server: Server) -> None:
    ranks_server.script("GET", f"/traces/{RANK0}/analysis/steps", answer(main=[[0]], other=[[1]]))
    result = run("analyze", "rank0.json", "steps", "--with", "rank1.json", "--set", "top=3", "--steps", "7")
    assert result.stdout.splitlines() == ["# main", "rank", "0", "", "# other", "rank", "1"]
    assert "b: None." in result.stderr
    query = ranks_server.sent("GET")[-1].query
    assert {key: query[key] for key in ("traces", "top", "format")} == {"traces": RANK1, "top": "3", "format": "json"}
    assert json.loads(query["selection"]) == {"steps": [7]}


def test_analyze_prints_all_tables_into_a_pipe(run: Run, ranks_server: Server, tmp_path: Path) -> None:
    ranks_server.script(
        "GET", f"/traces/{RANK0}/analysis/steps", *[answer(main=[[0], [1]], other=[["# main"]], third=[])] * 4
    )
    piped = run("analyze", "rank0.json", "steps").stdout
    tables = {part.partition("\n")[0]: part.splitlines()[1:] for part in piped.removeprefix("# ").split("\n\n# ")}
    assert tables == {"main": ["rank", "0", "1"], "other": ["rank", "# main"], "third": ["rank"]}
    assert run("analyze", "rank0.json", "steps", "-o", str(tmp_path / "out.tsv")).exit_code == 0
    assert (tmp_path / "out.tsv").read_text() == piped
    assert run("analyze", "rank0.json", "steps", "--table", "other").stdout.splitlines() == ["rank", "# main"]
    unknown = run("analyze", "rank0.json", "steps", "--table", "none")
    assert (unknown.exit_code, "the tables are main, other, third" in unknown.stderr) == (2, True)


def test_analyze_notes_the_table_of_csv(run: Run, ranks_server: Server, files: list[Path]) -> None:
    headers = {"Tracedock-Table": "main", "Tracedock-Tables": "main, other"}
    ranks_server.script("GET", f"/traces/{RANK0}/analysis/steps", *[Answer(200, b"rank\r\n", "text/csv", headers)] * 2)
    note = "csv contains one table, main, of main, other; --table selects another"
    unnamed = run("analyze", "rank0.json", "steps", "-f", "csv")
    assert (unnamed.stdout, note in unnamed.stderr) == ("rank\n", True)
    assert note not in run("analyze", "rank0.json", "steps", "-f", "csv", "--table", "other").stderr
    here = run("analyze", str(files[0]), "operators", "-f", "csv")
    assert f"csv contains one table, {next(iter(QUESTIONS['operators'].tables))}, of " in here.stderr


def test_analyze_prints_only_the_named_table_as_json(run: Run, files: list[Path]) -> None:
    one = run("analyze", str(files[0]), "operators", "-f", "json", "--table", "attribution")
    assert [*json.loads(one.stdout)["tables"]] == ["attribution"]


def test_analyze_draws_all_tables_with_names_on_a_terminal(on_terminal: OnTerminal, ranks_server: Server) -> None:
    ranks_server.script("GET", f"/traces/{RANK0}/analysis/steps", answer(main=[[0]], other=[[1]]))
    code, drawn, _ = on_terminal("analyze", "rank0.json", "steps")
    assert code == 0
    assert "main" in drawn
    assert "other" in drawn


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["horoscope"], 1, "no analysis"),
        (["temporal_breakdown", "--set", "memset"], 2, "NAME=VALUE"),
        (["temporal_breakdown", "--set", "memset=red"], 1, "memset"),
        (["temporal_breakdown", "--table", "none"], 2, "breakdown"),
        (["temporal_breakdown", "--with", "rank0.json"], 2, "combined"),
    ],
)
def test_analyze_refuses_invalid_requests(
    run: Run, files: list[Path], command: list[str], code: int, message: str
) -> None:
    result = run("analyze", str(files[0]), *command)
    assert result.exit_code == code
    assert message in result.stderr


def test_analyze_overlay_creates_a_trace_on_the_server(run: Run, ranks_server: Server) -> None:
    ranks_server.script(
        "POST", f"/traces/{RANK0}/overlay", json_answer(job("done", result={"traces": ["c" * 12]}), 202)
    )
    ranks_server.script("GET", "/jobs/3", json_answer(job("done", result={"traces": ["c" * 12]})))
    result = run("analyze", "rank0.json", "critical_path", "--overlay", "--steps", "3")
    assert (result.exit_code, result.stdout) == (0, f"{'c' * 12}\n"), result.stderr
    (sent,) = ranks_server.sent("POST")
    assert json.loads(sent.body) == {"analysis": "critical_path", "selection": {"steps": [3]}}


@pytest.mark.parametrize(
    "options",
    ["steps --overlay", "critical_path --overlay -f json", "critical_path --overlay -o here"],
)
def test_analyze_overlay_is_for_the_critical_path_only(run: Run, ranks_server: Server, options: str) -> None:
    assert run("analyze", "rank0.json", *options.split()).exit_code == 2
    assert ranks_server.sent("POST") == []

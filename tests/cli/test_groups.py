"""Groups and imports on the command line, against a real server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an import root with a run of two ranks."""
    folder = tmp_path_factory.mktemp("imports").resolve()
    (folder / "run").mkdir()
    for rank in range(2):
        write_trace(folder / "run" / f"rank{rank}.json", TraceShape(rank=rank, world_size=3, seed=rank))
    (folder / "run" / "notes.txt").write_text("hello")
    return folder


@pytest.fixture(scope="module")
def real(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("cli") / "data", import_roots=root, import_look_s=0.2).start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def ask(real: Server) -> Run:
    def invoke(*args: str) -> Result:
        return CliRunner().invoke(app, ["--url", real.url, *args], prog_name="tracedock")

    return invoke


@pytest.fixture(scope="module")
def imported(real: Server, ask: Run) -> list[str]:
    """Return the ids of the ranks, ready and in one group."""
    ids = ask("import", "run", "--group", "my run").stdout.split()
    for trace_id in ids:
        assert real.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()["state"] == "ready"
    return ids


def test_import_prints_the_ids_and_notes_skipped_files(ask: Run, imported: list[str]) -> None:
    again = ask("import", "run/rank*", "--group", "my run")

    assert (again.exit_code, again.stdout.split()) == (0, imported)
    result = ask("import", "run", "--group", "my run")
    assert "notes.txt: It is not named like a trace" in result.stderr


@pytest.mark.parametrize(("path", "code"), [("../x", "import_refused"), ("none.json", "nothing_to_import")])
def test_refused_import_is_reported(ask: Run, path: str, code: str) -> None:
    done = ask("import", path)

    assert (done.exit_code, done.stdout) == (1, "")
    assert code in done.stderr


def test_watching_import_is_listed_and_ended(ask: Run, root: Path) -> None:
    (root / "live").mkdir()
    watch = ask("import", "live", "--watch")
    assert (watch.exit_code, watch.stdout) == (0, "")

    _, line = ask("imports").stdout.splitlines()
    order = line.split("\t")[0]
    assert line.split("\t")[-1] == "live"
    assert f"imports end {order}" in watch.stderr
    assert ask("imports", "end", order).stdout == f"{order}\n"
    assert len(ask("imports").stdout.splitlines()) == 1


def test_groups_are_listed_and_shown_by_name(ask: Run, imported: list[str]) -> None:
    listed = [line.split("\t") for line in ask("groups").stdout.splitlines()]
    assert any(line[-1] == "my run" for line in listed)

    shown = ask("groups", "show", "my run")
    ranks = [line.split("\t") for line in shown.stdout.splitlines()][1:]
    assert [(line[0], line[1]) for line in ranks][:2] == [("0", imported[0]), ("1", imported[1])]
    assert "Missing ranks: 2 of" in shown.stderr


def rows_of(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.stderr
    names, *lines = [line.split("\t") for line in result.stdout.splitlines()]
    return [dict(zip(names, line, strict=True)) for line in lines]


def test_analyze_accepts_the_name_or_id_of_a_group(real: Server, ask: Run, imported: list[str]) -> None:
    by_name = ask("analyze", "my run", "temporal_breakdown", "--wait", "60")
    assert [row["rank"] for row in rows_of(by_name)] == ["0", "1"]
    group_id = real.api.get(f"/traces/{imported[0]}").json()["group"]["id"]
    assert ask("analyze", group_id, "temporal_breakdown").stdout == by_name.stdout
    again = ask("analyze", "my run", "temporal_breakdown", "--with", imported[0])  # a trace counts once
    assert again.stdout == by_name.stdout
    listed = ask("analyze", "my run")
    assert "temporal_breakdown" in listed.stdout


def test_name_of_a_trace_and_a_group_is_refused_with_both_ids(real: Server, ask: Run, imported: list[str]) -> None:
    group = real.api.post("/groups", json={"name": "rank0.json"}).json()
    refused = ask("analyze", "rank0.json", "temporal_breakdown")
    assert refused.exit_code == 1
    assert "matches a trace and a group" in refused.stderr
    assert imported[0] in refused.stderr
    assert f"{group['id']}" in refused.stderr
    real.api.delete(f"/groups/{group['id']}")
    unknown = ask("analyze", "no such run", "temporal_breakdown")
    assert (unknown.exit_code, "no group 'no such run'" in unknown.stderr) == (1, True)


def test_compare_takes_two_groups(real: Server, ask: Run, imported: list[str]) -> None:
    refused = ask("analyze", "my run", "compare")
    assert refused.exit_code == 1
    assert "only one is given: the group 'my run' of 2 traces" in refused.stderr
    real.api.post("/groups", json={"name": "none yet"})
    assert "not ready" in ask("analyze", "none yet", "steps").stderr

    compared = ask("analyze", "my run", "compare", "--base", "my run", "--table", "each_step")
    assert {(row["rank"], row["verdict"]) for row in rows_of(compared)} == {("0", "same"), ("1", "same")}
    assert "The sides are matched by rank: ranks 0, 1." in compared.stderr
    first_is_base = ask("analyze", imported[1], "compare", "--with", "my run", "--table", "each_step")
    assert {row["rank"] for row in rows_of(first_is_base)} == {"1"}
    assert "The other side has no" not in first_is_base.stderr
    assert "The base has no rank 0." in first_is_base.stderr


def test_cycle_of_a_group_is_chosen(real: Server, ask: Run, tmp_path: Path) -> None:
    for rank in range(2):
        for first_step in (3, 13):
            shape = TraceShape(rank=rank, world_size=2, first_step=first_step, seed=10 * first_step + rank)
            path = write_trace(tmp_path / f"rank{rank}.{first_step}.json", shape)
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "of two cycles"}
            real.api.put(f"/traces/{path.name}", params=query, content=path.read_bytes())

    refused = ask("groups", "merge", "of two cycles")
    assert refused.exit_code == 1
    assert "the cycles 0 (steps 3 to 5), 1 (steps 13 to 15)." in refused.stderr
    merged = ask("groups", "merge", "of two cycles", "--cycle", "1")
    trace = real.api.get(f"/traces/{merged.stdout.strip()}").json()
    assert [rank["name"] for rank in trace["ranks"]] == ["rank0.13.json", "rank1.13.json"]

    steps = rows_of(ask("analyze", "of two cycles", "steps", "--cycle", "1", "--table", "steps"))
    assert {row["step"] for row in steps} == {"13", "14", "15"}
    assert "cycle" not in steps[0]
    report = ask("report", "of two cycles")
    assert "- Cycle: 0" in report.stdout
    assert ask("report", "of two cycles", "--cycle", "0").stdout == report.stdout


def test_group_is_merged_and_deleted(real: Server, ask: Run, root: Path) -> None:
    ask("import", "run/rank*.json", "--group", "gone soon", "--mode", "copy")
    shown = ask("groups", "show", "gone soon", "--json")
    for line in real.api.get("/traces").json()["traces"]:
        real.api.get(f"/traces/{line['id']}", params={"wait": PATIENCE_S})

    merged = ask("groups", "merge", "gone soon", "--name", "all.json")
    assert merged.exit_code == 0, merged.stderr
    assert real.api.get(f"/traces/{merged.stdout.strip()}").json()["name"] == "all.json"

    refused = ask("groups", "rm", "gone soon", "--traces")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert ask("groups", "rm", "gone soon", "--traces", "--yes").exit_code == 0
    assert ask("groups", "show", "gone soon").exit_code == 1
    assert '"gone soon"' in shown.stdout

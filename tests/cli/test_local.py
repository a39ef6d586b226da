"""Commands on local files, without a server."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.analysis.training import Training
from tests.cli.conftest import COMMAND
from tests.conftest import DATA
from tests.traces import TraceShape, write_trace

STEPS = DATA / "cpu_train_steps.pt.trace.json.gz"
RANKS = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in (0, 1)]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run commands in a folder, with their temporary files in another one."""
    spare, here = tmp_path / "spare", tmp_path / "here"
    spare.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    return here


def local(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["--url", "http://127.0.0.1:9", *map(str, arguments)], prog_name="tracedock")
    assert not os.listdir(tempfile.gettempdir())  # noqa: PTH208 - whatever it is
    return result


def read(path: str | Path) -> dict[str, Any]:
    content = Path(path).read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return document


def events(path: str | Path, without: str = "") -> list[str]:
    return sorted(
        json.dumps(event, sort_keys=True) for event in read(path)["traceEvents"] if event["ph"] not in without
    )


def steps_in(path: str | Path) -> set[str]:
    return {event["name"] for event in read(path)["traceEvents"] if str(event.get("name")).startswith("ProfilerStep")}


# -- split ---------------------------------------------------------------------------------------------------------


def test_split_of_a_file_by_step_writes_files(work: Path) -> None:
    result = local("split", STEPS, "--by", "step", "-o", "out")
    assert result.exit_code == 0, result.stderr
    files = [f"out/cpu_train_steps.step{number}.pt.trace.json.gz" for number in (2, 3, 4, 5)]
    assert result.stdout.splitlines() == files
    assert sorted(os.listdir("out")) == [Path(file).name for file in files]  # noqa: PTH208
    for number, file in zip((2, 3, 4, 5), files, strict=True):
        assert steps_in(file) == {f"ProfilerStep#{number}"}
        assert read(file)["tracedock"]["part"]["selection"] == {"steps": [number]}
    whole = set(events(STEPS))
    assert all(set(events(file)) <= whole for file in files)


def test_dry_run_of_a_file_writes_no_files(work: Path) -> None:
    planned = json.loads(local("split", STEPS, "--by", "step", "--dry-run", "--json").stdout)
    assert os.listdir(work) == []  # noqa: PTH208
    written = json.loads(local("split", STEPS, "--by", "step", "--json").stdout)
    for plan, piece in zip(planned["pieces"], written["pieces"], strict=True):
        for fact in ("name", "selection", "events", "counts"):
            assert plan[fact] == piece[fact]
        assert len(read(piece["file"])["traceEvents"]) == plan["events"]
    assert planned["events"] == written["events"]


def test_merged_parts_of_a_file_are_the_file(work: Path) -> None:
    parts = local("split", STEPS, "--by", "parts", "--value", "3").stdout.split()
    assert len(parts) == 3
    result = local("merge", *parts, "-o", "again.json")
    assert (result.exit_code, result.stdout) == (0, "again.json\n")
    # No part contains an arrow between two parts.
    assert events("again.json", without="sf") == events(STEPS, without="sf")
    assert set(events("again.json")) < set(events(STEPS))


def test_split_replaces_files_only_with_force(work: Path) -> None:
    there = work / "cpu_train_steps.step3.pt.trace.json.gz"
    there.write_text("mine")
    refused = local("split", STEPS, "--by", "step")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "cpu_train_steps.step3.pt.trace.json.gz: File exists; --force replaces it" in refused.stderr
    assert [path.read_text() for path in work.iterdir()] == ["mine"]
    assert local("split", STEPS, "--by", "step", "--force").exit_code == 0
    assert steps_in(there) == {"ProfilerStep#3"}


# -- overlay -------------------------------------------------------------------------------------------------------


def test_overlay_of_a_file_has_its_critical_path(work: Path) -> None:
    Path("steps.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": Training(layers=5).events}))
    command = ("analyze", "steps.json", "critical_path", "--overlay")
    result = local(*command, "--steps", "1")
    assert (result.exit_code, result.stdout) == (0, "steps.critical-path.pt.trace.json.gz\n"), result.stderr
    written = read("steps.critical-path.pt.trace.json.gz")
    assert written["tracedock"]["overlay"]["selection"] == {"steps": [1]}
    assert {event["ph"] for event in written["traceEvents"] if event.get("cat") == "critical_path"} == {"X", "s", "f"}
    assert "--force replaces it" in local(*command).stderr
    assert local(*command, "--output", "path.json").stdout == "path.json\n"
    assert set(events("steps.json")) <= set(events("path.json"))


# -- merge ---------------------------------------------------------------------------------------------------------


def test_merge_of_rank_files_writes_one_file(work: Path) -> None:
    result = local("merge", *RANKS)
    assert (result.exit_code, result.stdout) == (0, "merged-2.pt.trace.json.gz\n")
    merged = read("merged-2.pt.trace.json.gz")
    assert len(merged["traceEvents"]) >= sum(len(read(file)["traceEvents"]) for file in RANKS)
    assert merged["tracedock"]["merged"]
    again = local("merge", *RANKS)
    assert again.exit_code == 1
    assert "File exists" in again.stderr


def test_merge_of_files_of_several_cycles_takes_one_cycle(work: Path) -> None:
    files = [
        write_trace(
            work / f"rank{rank}.{first}.json", TraceShape(rank=rank, world_size=2, first_step=first, seed=first)
        )
        for rank in range(2)
        for first in (3, 13)
    ]
    refused = local("merge", *files)
    assert refused.exit_code == 1
    assert "of the cycles 0 (steps 3 to 5), 1 (steps 13 to 15). Choose one with `cycle`" in refused.stderr
    assert local("merge", *files, "--cycle", 1).stdout == "merged-cycle1.pt.trace.json.gz\n"
    assert {"ProfilerStep#13", "ProfilerStep#15"} <= steps_in("merged-cycle1.pt.trace.json.gz")
    assert "ProfilerStep#3" not in steps_in("merged-cycle1.pt.trace.json.gz")
    unknown = local("merge", *files, "--cycle", 2)
    assert (unknown.exit_code, "There is no cycle 2." in unknown.stderr) == (1, True)


def test_merge_takes_ranks_that_files_lack(work: Path) -> None:
    copy = work / "other.json.gz"
    shutil.copy(DATA / "cpu_stack_memory.pt.trace.json.gz", copy)
    refused = local("merge", STEPS, copy, "-o", "x.json.gz")
    assert refused.exit_code == 1
    assert "cannot_merge" in refused.stderr
    result = local("merge", STEPS, copy, "--ranks", "4,2", "-o", "x.json.gz")
    assert result.exit_code == 0
    assert "without a common collective: rank 2, 4." in result.stderr


def test_merge_refuses_a_file_with_itself(work: Path) -> None:
    (work / "copy.json.gz").write_bytes(RANKS[0].read_bytes())
    result = local("merge", RANKS[0], "copy.json.gz", "-o", "x.json")
    assert result.exit_code == 1
    assert "with itself" in result.stderr
    assert not (work / "x.json").exists()


def test_merge_refuses_files_with_traces_on_a_server(work: Path) -> None:
    result = local("merge", RANKS[0], "latest")
    assert result.exit_code == 2
    assert "latest is not" in " ".join(result.stderr.split())
    assert local("merge", *RANKS, "--name", "x").exit_code == 2
    assert local("merge", *RANKS, "-o", "none/x.json").exit_code == 1


# -- download ------------------------------------------------------------------------------------------------------


def test_download_of_a_file_writes_a_selection(work: Path) -> None:
    result = local("download", STEPS, "--steps", "3", "-o", "x.json.gz")
    assert (result.exit_code, result.stdout) == (0, "x.json.gz\n")
    assert steps_in("x.json.gz") == {"ProfilerStep#3"}
    assert local("download", STEPS, "--steps", "3", "-o", "x.json").exit_code == 0
    assert (work / "x.json").read_bytes() == gzip.decompress((work / "x.json.gz").read_bytes())
    piped = local("download", STEPS, "--steps", "3", "-o", "-", "-f", "json")
    assert piped.stdout_bytes == (work / "x.json").read_bytes()


def test_download_of_a_file_writes_under_a_new_name(work: Path) -> None:
    for options, name in (
        (["--steps", "3"], "cpu_train_steps.cut.pt.trace.json.gz"),
        (["--redact", "-f", "json"], "cpu_train_steps.redacted.pt.trace.json"),
        ([], "cpu_train_steps.copy.pt.trace.json.gz"),
    ):
        assert local("download", STEPS, *options).stdout == f"{name}\n"
        assert local("download", STEPS, *options).exit_code == 1
    assert events("cpu_train_steps.copy.pt.trace.json.gz") == events(STEPS)
    assert local("download", STEPS, "-f", "parquet").exit_code == 2


# -- what is wrong with a file -------------------------------------------------------------------------------------


def test_selection_error_of_a_file_lists_known_values(work: Path) -> None:
    for command in (["split"], ["split", "--dry-run"], ["download"]):
        result = local(*command, STEPS, "--steps", "77")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "it has 2, 3, 4, 5" in result.stderr
    assert os.listdir(work) == []  # noqa: PTH208


def test_file_that_is_not_a_trace_is_refused_and_leaves_no_files(work: Path) -> None:
    (work / "a.json").write_text("hello")
    result = local("split", "a.json")
    assert result.exit_code == 1
    assert "error: The file is not valid JSON (not_json)" in result.stderr
    assert "a.json:" in local("merge", RANKS[0], "a.json", "-o", "x.json").stderr
    assert os.listdir(work) == ["a.json"]  # noqa: PTH208


@pytest.mark.parametrize("path", ["./none.json", "/no/such.json", "./"])
def test_path_without_a_file_is_wrong_usage(work: Path, path: str) -> None:
    for command in ("split", "download"):
        assert local(command, path).exit_code == 2


def test_repairs_of_a_file_are_noted(work: Path) -> None:
    whole = json.dumps(
        {"traceEvents": [{"ph": "X", "name": f"e{n}", "ts": n, "dur": 1, "pid": 1, "tid": 1} for n in (1, 2)]}
    )
    (work / "a.json").write_text(whole.replace('"e1"', '"e "1" x"')[:-1])
    result = local("download", "a.json", "-o", "b.json")
    assert result.exit_code == 0
    assert "a.json: " in result.stderr
    assert "1 repaired (unescaped_quote)" in result.stderr
    assert "First at byte " in result.stderr
    assert [event["name"] for event in read("b.json")["traceEvents"]] == ['e "1" x', "e2"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signalled_command_leaves_no_files(work: Path, number: signal.Signals, code: int) -> None:
    spare = Path(tempfile.gettempdir())
    command = [*COMMAND, "split", str(STEPS), "--by", "step", "-o", "out"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(spare)}, stderr=subprocess.PIPE) as process:
        while not any(spare.iterdir()):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == code
    assert not any(spare.iterdir())
    assert not any(work.iterdir())


@pytest.mark.parametrize(("options", "name"), [
    (["-f", "pftrace"], "cpu_train_steps.copy.pt.trace.pftrace"),
    (["-o", "x.pftrace"], "x.pftrace"),
    (["-o", "x.pftrace.gz"], "x.pftrace.gz"),
    (["-f", "pftrace.gz", "--steps", "3"], "cpu_train_steps.cut.pt.trace.pftrace.gz"),
])  # fmt: skip
def test_download_writes_a_local_file_as_perfettos_protobuf(work: Path, options: list[str], name: str) -> None:
    result = local("download", STEPS, *options)
    assert (result.exit_code, result.stdout) == (0, f"{name}\n")
    again = local("download", name, "-o", "again.json")
    assert again.exit_code == 0, again.output
    part = ["--steps", "3"] if "--steps" in options else []
    assert local("download", STEPS, *part, "-o", "own.json").exit_code == 0
    assert events("again.json") == events("own.json")


def test_perfetto_traces_are_by_time_only(work: Path) -> None:
    refused = local("download", STEPS, "-f", "pftrace", "--order", "original")
    assert (refused.exit_code, os.listdir(work)) == (2, [])  # noqa: PTH208 - whatever it is

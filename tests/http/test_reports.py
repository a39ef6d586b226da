"""Reports hold the figures of the analyses, in two forms, and need nothing but themselves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from service.report.sections import RUN_SECTIONS, TRACE_SECTIONS
from service.report.units import readable
from tests.conftest import DATA
from tests.server import Server
from tests.snapshots import SMALL, pickled
from tests.traces import TraceShape, examples, write_trace
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def run_ids(server: Server) -> list[str]:
    """The ids of a group and of its two ready ranks."""
    ids = []
    for name, content in examples().items():
        answer = server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S, "group": "reported"}, content=content)
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["id"])
    (group,) = server.api.get("/groups", params={"name": "reported"}).json()["groups"]
    return [group["id"], *ids]


def markdown(server: Server, path: str, **parameters: Any) -> str:
    answer = server.api.get(f"{path}/report", params={"format": "markdown", "wait": PATIENCE_S, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.text


def rows(server: Server, path: str, analysis: str, table: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = server.api.get(f"{path}/analysis/{analysis}", params=parameters).json()["tables"][table]
    names = [column["name"] for column in answer["columns"]]
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def cells(text: str, title: str) -> list[list[str]]:
    """Return the cells of the table below a title."""
    lines = text.split(title, 1)[1].split("\n\n", 2)[1].splitlines()
    return [[cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_report_on_a_trace_has_the_figures_of_the_analyses(server: Server, run_ids: list[str]) -> None:
    path = f"/traces/{run_ids[1]}"
    text = markdown(server, path)

    (device,) = rows(server, path, "temporal_breakdown", "breakdown")
    assert f"The GPU is idle {readable(device['idle_pct'], '%')} of {readable(device['span_ns'], 'ns')}" in text
    [[_, *parts]] = cells(text, "Time of each GPU")
    lengths = [device["compute_ns"] - device["overlap_ns"], *(device[f"{n}_ns"] for n in ("overlap", "exposed_comm"))]
    assert [part.split(" (")[0] for part in parts][:3] == [readable(length, "ns") for length in lengths]

    costliest = sorted(rows(server, path, "kernel_breakdown", "kernels"), key=lambda row: -row["sum_ns"])[:10]
    shown = cells(text, "Kernels with the most time")
    assert [row[1:3] for row in shown] == [[str(row["count"]), readable(row["sum_ns"], "ns")] for row in costliest]
    steps = rows(server, path, "steps", "steps")
    assert [row[0] for row in cells(text, "Time of each step")] == [f"step {row['step']}" for row in steps]
    for advice in rows(server, path, "recommendations", "recommendations"):
        assert advice["reason"].split(".")[0] in text.replace("\\", "")
    [gpu] = rows(server, path, "gpu_summary", "gpus")
    shares = [readable(gpu[f"tensor_core_{share}"], "%") for share in ("pct", "unknown_pct")]
    assert cells(text, "Use of each GPU")[0][-2:] == shares


def test_report_on_a_run_names_its_late_rank(server: Server, run_ids: list[str]) -> None:
    path = f"/groups/{run_ids[0]}"
    text = markdown(server, path)

    ranks = rows(server, path, "collectives", "ranks")
    (late,) = [row for row in ranks if row["straggler"] == "yes"]
    assert f"Stragglers: rank {late['rank']}." in text
    assert f"Other ranks wait {readable(late['waited_for_ns'], 'ns')} for them." in text
    for figure in rows(server, path, "recommendations", "evidence"):
        if figure["rule"] == "communication":  # a figure of each rank
            assert f"rank {figure['rank']}: {figure['measure']}" in text
    shown = cells(text, "Ranks, the latest first")
    assert {row[0] for row in shown} == {str(row["rank"]) for row in ranks}
    assert "- Ranks: 0, 1 of 2" in text


@pytest.mark.parametrize("kind", ["traces", "groups"])
def test_report_calls_every_analysis_that_it_shows(server: Server, run_ids: list[str], kind: str) -> None:
    target = run_ids[0] if kind == "groups" else run_ids[1]
    text = markdown(server, f"/{kind}/{target}")
    calls = re.findall(r"`GET (/api/v1/\S+)`", text)
    plans = TRACE_SECTIONS if kind == "traces" else RUN_SECTIONS
    assert len(calls) == sum(not plan.if_known for plan in plans)
    for call in calls:
        assert server.api.get(f"{server.url}{call}").status_code in (200, 422)  # 422: it does not apply


def test_report_on_a_memory_snapshot_has_its_peak_and_who_held_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / "memory_rank0.pickle").write_bytes(pickled(SMALL))
    text = markdown(server, f"/traces/{server.upload(tmp_path / 'memory_rank0.pickle')['id']}")

    assert text.index("## What holds memory") < text.index("## Where the time goes")
    assert cells(text, "Memory of each GPU")[0][:2] == ["8.39 MB", "21.0 MB"]
    assert [row[0] for row in cells(text, "What held memory at the peak")] == [
        "/home/ann/model.py:12 forward",
        "/home/ann/model.py:10 forward",
    ]
    assert "Stacks that leave memory behind" not in text


def test_report_on_a_selection_has_its_figures_and_names_it(server: Server, run_ids: list[str]) -> None:
    path = f"/traces/{run_ids[1]}"
    text = markdown(server, path, steps=11)

    (step,) = cells(text, "Time of each step")
    assert step[0] == "step 11"
    (device,) = rows(server, path, "temporal_breakdown", "breakdown", steps=11)
    assert f"of {readable(device['span_ns'], 'ns')}" in text
    assert "- Selection: " in text
    call = re.search(r"`GET (/api/v1/\S+/temporal_breakdown\S*)`", text)
    assert call
    again = server.api.get(f"{server.url}{call[1]}").json()["tables"]["breakdown"]["rows"]
    assert again[0][2] == device["span_ns"]


def test_html_is_one_file_with_a_policy_for_its_style_alone(server: Server, run_ids: list[str]) -> None:
    answer = server.api.get(f"/traces/{run_ids[1]}/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "sha256-" in answer.headers["content-security-policy"]
    assert re.search(r"inline; filename\*=UTF-8''gpt_rank0\S*report\.html", answer.headers["content-disposition"])
    assert not re.search(r"\b(src|href)=|url\(|@import|<script", answer.text)


def test_accept_field_chooses_markdown(server: Server, run_ids: list[str]) -> None:
    answer = server.api.get(f"/traces/{run_ids[1]}/report", headers={"Accept": "text/markdown"})
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.text.startswith("# gpt\\_rank0")


@pytest.mark.parametrize("content", [b'{"traceEvents": []}', DATA / "cpu_train_steps.pt.trace.json.gz"], ids=str)
def test_trace_without_work_on_a_gpu_has_reasons_instead_of_figures(server: Server, content: bytes | Path) -> None:
    body = content.read_bytes() if isinstance(content, Path) else content
    trace = server.api.put("/traces/host.json", params={"wait": PATIENCE_S}, content=body).json()["id"]
    text = markdown(server, f"/traces/{trace}")
    where = text.split("## Where the time goes")[1].split("##")[0]
    assert "Not known: " in where
    assert "0 %" not in where
    assert ("## Steps\n\nNot known: " in text) == isinstance(content, bytes)


def test_hostile_names_are_text_in_a_report(server: Server, tmp_path: Path) -> None:
    name = "<script>alert(1)</script>|`x`"
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    events = [kernel | {"args": {"device": 0, "stream": 7}}]
    trace = server.api.put(
        "/traces/h.json", params={"wait": PATIENCE_S}, content=json.dumps({"traceEvents": events})
    ).json()
    html = server.api.get(f"/traces/{trace['id']}/report").text
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;|`x`" in html
    assert "`` <script>alert(1)</script>\\|`x` ``" in markdown(server, f"/traces/{trace['id']}")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/traces/nothing/report", 404, "unknown_trace"),
        ("/groups/nothing/report", 404, "unknown_group"),
        ("/traces/{}/report?format=pdf", 422, "bad_request"),
        ("/traces/{}/report?steps=999", 422, "unknown_choice"),
        ("/traces/{}/report?colour=red", 422, "unknown_parameter"),
    ],
)
def test_report_that_cannot_be_made_is_refused(
    server: Server, run_ids: list[str], path: str, status: int, code: str
) -> None:
    answer = server.api.get(path.format(run_ids[1]))
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_report_on_a_run_of_several_cycles_is_on_one_of_them(server: Server, tmp_path: Path) -> None:
    for rank in range(2):
        for first_step in (3, 13):
            shape = TraceShape(rank=rank, world_size=2, steps=2, first_step=first_step, seed=rank + first_step)
            file = write_trace(tmp_path / f"cycle{rank}.{first_step}.json", shape)
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "reported cycles"}
            trace = server.api.put(f"/traces/{file.name}", params=query, content=file.read_bytes()).json()
    path = f"/groups/{trace['group']['id']}"

    for cycle, steps, others in (
        (0, "0 (steps 3 to 4)", "1 (steps 13 to 14)"),
        (1, "1 (steps 13 to 14)", "0 (steps 3"),
    ):
        text = markdown(server, path, cycle=cycle)
        for fact in (f"- Cycle: {steps}\n", f"- Other cycles: {others}", "- Traces: 2\n", "- Ranks: 0, 1 of 2\n"):
            assert fact in text.replace("\\", "")
        assert "The 2 GPUs are" in text
        assert f"{path}/analysis/steps?cycle={cycle}" in text
        devices = rows(server, path, "temporal_breakdown", "breakdown", cycle=cycle)
        shares = [cell[1] for cell in cells(text, "Shares of the time")]
        assert shares == [readable(device["span_ns"], "ns") for device in devices]
    assert markdown(server, path) == markdown(server, path, cycle=0)


def test_report_on_a_run_leaves_out_a_rank_that_cannot_be_read(server: Server, tmp_path: Path) -> None:
    for name, content in (
        ("good.json", write_trace(tmp_path / "a.json", TraceShape()).read_bytes()),
        ("bad.json", b"x"),
    ):
        server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S, "group": "half"}, content=content)
    (group,) = server.api.get("/groups", params={"name": "half"}).json()["groups"]
    assert "bad.json could not be read, and is left out." in markdown(server, f"/groups/{group['id']}")


def test_report_on_a_run_has_the_figures_of_advice_on_its_gpus(server: Server, tmp_path: Path) -> None:
    for rank in range(2):
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": rank, "tid": 7, "ts": 0, "dur": 5}
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9, "ts": 0, "dur": 100}
        events = [step, kernel | {"args": {"device": rank, "stream": 7}}]
        trace = {"distributedInfo": {"rank": rank}, "traceEvents": events}
        path = f"/traces/idle{rank}.json?wait={PATIENCE_S}&group=idle"
        server.api.put(path, content=json.dumps(trace)).raise_for_status()
    (group,) = server.api.get("/groups", params={"name": "idle"}).json()["groups"]
    text = markdown(server, f"/groups/{group['id']}")
    for rank in range(2):
        assert f"rank {rank}: neither operators, calls nor GPU work: 95 µs" in text

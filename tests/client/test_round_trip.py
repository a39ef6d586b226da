"""All that a script does with a server, by both clients."""

from __future__ import annotations

import asyncio
import hashlib
import webbrowser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tracedock import AsyncClient, errors

from tests.client.conftest import Connect, Driven
from tests.docs.pages import EXAMPLES
from tests.pftrace import content, program, system
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

RANKS = sorted(EXAMPLES.glob("*.gz"))


@pytest.fixture
def run(dock: Driven) -> list[Any]:
    """The traces of the example's two ranks, in a group."""
    traces = [dock.upload(path, group="gpt") for path in RANKS]
    return [dock.wait(trace) for trace in traces]


def test_late_rank_of_the_example_is_found(dock: Driven, run: list[Any]) -> None:
    group = dock.group("gpt")
    steps = dock.analyze(group, "dataloader", tables=["steps"]).table
    worst = max(steps, key=lambda step: step["loading_ns"])
    assert (worst["rank"], worst["step"]) == (1, 11)
    path = dock.analyze(run[0], "critical_path", steps=[worst["step"]])["summary"]
    assert path.rows
    assert dock.report(group, form="markdown").startswith("#")
    assert [each["name"] for each in dock.analyses(run[0]) if each["applies"]]


def test_pieces_and_merges_are_traces(dock: Driven, run: list[Any]) -> None:
    plan = dock.plan(run[0], by="step")
    pieces = [dock.trace(id_) for id_ in dock.finish(dock.split(run[0], by="step"))["result"]["traces"]]
    assert {piece["name"] for piece in pieces} == {piece["name"] for piece in plan["pieces"]}
    assert [piece["parent"] for piece in pieces] == [run[0]["id"]] * len(plan["pieces"])
    (merged,) = dock.finish(dock.merge(run, name="both.json"), timeout_s=300)["result"]["traces"]
    assert [rank["rank"] for rank in dock.wait(merged)["ranks"]] == [0, 1]
    (overlaid,) = dock.finish(dock.overlay(run[0], "critical_path", steps=[11]))["result"]["traces"]
    assert dock.wait(overlaid)["parent"] == run[0]["id"]


def test_cycle_of_a_run_is_chosen(dock: Driven, tmp_path: Path) -> None:
    traces = [
        dock.upload(
            write_trace(tmp_path / f"{rank}.{first}.json", TraceShape(rank=rank, world_size=2, first_step=first)),
            group=f"cycles of {tmp_path}",
        )
        for rank in range(2)
        for first in (3, 13)
    ]
    traces = [dock.wait(trace) for trace in traces]
    group = dock.group(f"cycles of {tmp_path}")
    assert dock.analyze(group, "steps").cycles == 2
    assert {row["step"] for row in dock.analyze(group, "steps", cycle=1)["steps"]} == {13, 14, 15}
    compared = dock.analyze(group, "compare", base=[group], cycle=1, base_cycle=0)["each_step"]
    assert {(row["base_step"], row["step"]) for row in compared} == {(3, 13), (4, 14), (5, 15)}
    assert "Cycle: 1" in dock.report(group, form="markdown", cycle=1)
    with pytest.raises(errors.SelectionError, match="the cycles 0"):
        dock.merge_group(group)
    for job in (dock.merge_group(group, cycle=1), dock.merge(traces, cycle=1)):
        (merged,) = dock.finish(job, timeout_s=300)["result"]["traces"]
        assert [rank["name"] for rank in dock.wait(merged)["ranks"]] == ["0.13.json", "1.13.json"]


def test_selection_is_downloaded(dock: Driven, run: list[Any], tmp_path: Path) -> None:
    whole = dock.download_to(run[0], tmp_path)
    assert whole == tmp_path / run[0]["name"]
    assert hashlib.sha256(whole.read_bytes()).hexdigest() == run[0]["sha256"]
    part = dock.download_to(run[0], tmp_path / "part.json.gz", steps=[11], streams=["0/7"])
    assert 0 < part.stat().st_size < whole.stat().st_size
    with pytest.raises(FileExistsError, match="overwrite"):
        dock.download_to(run[0], whole)
    assert dock.download_to(run[0], whole, overwrite=True) == whole
    assert {path.name for path in tmp_path.iterdir()} == {whole.name, "part.json.gz"}


def test_link_opens_the_perfetto_ui(dock: Driven, run: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    link = dock.open(run[0], steps=[11])
    assert opened == [link] == [dock.client.perfetto_url(run[0], steps=[11])]
    assert httpx.get(link, trust_env=False).is_redirect
    with pytest.raises(errors.SelectionError):
        dock.open(run[0], steps=[99])


def test_files_are_attached_read_and_deleted(dock: Driven, run: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "flops & more.txt"
    path.write_text("\n----- DeepSpeed Flops Profiler -----\nfwd latency:    76.67 ms\n")
    group = dock.group("gpt")
    of_group, of_trace = dock.attach(group, path), dock.attach(run[0], path, name="other.txt")
    assert (of_group["name"], of_group["kind"], of_trace["name"]) == (path.name, "deepspeed_flops", "other.txt")
    assert dock.attach(group["id"], path, of="group") == of_group
    assert {each["id"] for each in dock.attachments(group)} >= {of_group["id"], of_trace["id"]}
    assert [each["id"] for each in dock.attachments(run[0])] == [of_trace["id"]]
    assert dock.read_attachment(of_group) == path.read_bytes()
    [table] = dock.attachment_tables(of_group)["tables"]
    assert table["rows"] == [["fwd latency", "76.67", "ms"]]
    with pytest.raises(errors.ApiError) as refused:
        dock.match_attachment(of_group)
    assert refused.value.code == "bad_attachment"
    with pytest.raises(errors.ApiError, match="is a trace"):
        dock.attach(group, RANKS[0])
    for attachment in (of_group, of_trace):
        dock.delete_attachment(attachment)
    assert of_group["id"] not in {each["id"] for each in dock.attachments(group)}


def test_groups_are_made_changed_and_removed(dock: Driven, run: list[Any]) -> None:
    group = dock.create_group(f"made-{run[0]['id']}", [run[0]])
    assert [rank["trace"] for rank in group["ranks"]] == [run[0]["id"]]
    with pytest.raises(errors.ConflictError):
        dock.create_group(group["name"])
    changed = dock.change_group(group, name=f"changed-{run[0]['id']}", traces=run, pinned=True)
    assert [changed["name"], len(changed["ranks"])] == [f"changed-{run[0]['id']}", 2]
    assert dock.trace(run[1])["pinned"]
    assert not dock.pin(run[1], pinned=False)["pinned"]
    assert dock.move(run[1], None)["group"] is None
    assert dock.target(changed["name"]) == ("group", dock.target(changed["name"])[1])
    dock.delete_group(changed)
    with pytest.raises(errors.NotFoundError):
        dock.group(changed["name"])


def test_sessions_and_jobs_are_listed(dock: Driven, run: list[Any]) -> None:
    session = dock.open_session(run[0], wait=60, steps=[11])
    assert session["selection"] == {"steps": [11]}
    assert run[0]["id"] in {each["trace"] for each in dock.sessions()["sessions"]}
    dock.close_session(run[0], steps=[11])
    job = dock.finish(dock.split(run[0], steps=[11]))
    assert dock.jobs(kind="split", states=["done"], trace=run[0])[0]["id"] == job["id"]
    assert dock.cancel(job)["state"] == "done"


def test_original_of_a_perfetto_trace_is_queried_opened_and_closed(dock: Driven, tmp_path: Path) -> None:
    path = tmp_path / "mixed.pftrace"
    path.write_bytes(content([*program(), *system()]))
    trace = dock.wait(dock.upload(path))
    count = "SELECT count(*) AS n FROM sched"

    assert dock.sql(trace, count, source="original").rows == [(150,)]
    assert dock.sql(trace, count).rows == [(0,)]
    assert dock.query(trace, count, source="original")["rows"] == [[150]]
    session = dock.open_session(trace, source="original", wait=60)
    assert session["engine"]["pid"] == dock.session(trace, source="original")["engine"]["pid"]
    dock.check_perfetto(trace, source="original")
    dock.close_session(trace, source="original")
    with pytest.raises(errors.ApiError) as closed:
        dock.session(trace, source="original")
    assert closed.value.code == "not_ready"
    with pytest.raises(errors.ApiError) as refused:
        dock.sql(trace, count, source="original", names=["work"])
    assert refused.value.code == "source_unavailable"


def test_refusals_are_told_apart(dock: Driven, run: list[Any]) -> None:
    with pytest.raises(errors.SqlError) as syntax:
        dock.sql(run[0], "SELECT\n  nothing FROM nowhere")
    assert syntax.value.code == "sql_error"
    with pytest.raises(errors.SqlError):
        dock.sql(run[0], "ATTACH 'a' AS b")
    with pytest.raises(errors.SelectionError):
        dock.sql(run[0], "SELECT 1", streams=["9/9"])
    with pytest.raises(errors.DeadlineError):
        dock.sql(
            run[0],
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
            timeout_s=0.2,
        )
    with pytest.raises(errors.NotFoundError):
        dock.analyze(run[0], "nonsense")
    with pytest.raises(errors.NotApplicableError):
        dock.analyze(run[0], "counters")
    with pytest.raises(errors.NotFoundError):
        dock.trace("0123456789ab")
    with pytest.raises(errors.InvalidRequestError):
        dock.analyze(run[0], "steps", parameters={"nonsense": 1})


def test_wait_ends_once_the_trace_is_ready(dock: Driven) -> None:
    trace = dock.upload(RANKS[0], name="waited.json.gz")
    assert dock.wait(trace, timeout_s=PATIENCE_S)["state"] == "ready"


def test_token_without_scope_is_told_apart_from_no_token(connect: Connect, start_server: Any) -> None:
    server = start_server(token="secret-token-of-the-test")
    with pytest.raises(errors.UnauthorizedError):
        connect(server.url).traces()
    assert connect(server.url, "secret-token-of-the-test").traces() == []


def test_tasks_share_an_asynchronous_client(real_server: Server) -> None:
    async def run() -> list[Any]:
        async with AsyncClient(real_server.url) as client:
            traces = await asyncio.gather(*(client.upload(path, wait=True) for path in RANKS))
            tables = await asyncio.gather(*(client.sql(trace, "SELECT count(*) AS n FROM slice") for trace in traces))
            return [table.column("n")[0] for table in tables]

    assert all(count > 1000 for count in asyncio.run(run()))


def test_cancelled_task_ends_its_query(real_server: Server) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

    async def run() -> int:
        async with AsyncClient(real_server.url) as client:
            trace = await client.upload(RANKS[0], wait=True)
            await client.open_session(trace, wait=60)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.sql(trace, endless, timeout_s=None), 1)
            return len(await client.sql(trace, "SELECT 1"))

    assert asyncio.run(run()) == 1

"""``/library`` lists runs and single traces; the addresses of lists lead browsers to pages."""

from collections.abc import Iterator

import httpx
import pytest

from service.http import shapes
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a run of two ranks and a trace that failed."""
    server = Server(tmp_path_factory.mktemp("library") / "data", import_roots="/srv/runs,/mnt/traces").start()
    folder = tmp_path_factory.mktemp("run")
    for rank in range(2):
        path = write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, world_size=4, seed=rank + 1))
        server.api.put(f"/traces/{path.name}", params={"wait": PATIENCE_S, "group": "gpt"}, content=path.read_bytes())
    server.api.put("/traces/cut.json", params={"wait": PATIENCE_S}, content=b'{"traceEvents": [{"ph": "X", "na')
    yield server
    server.stop()


def entries(server: Server, **params: str | int) -> list[shapes.LibraryEntry]:
    answer = server.api.get("/library", params=params)
    assert answer.status_code == 200, answer.text
    return shapes.LibraryList.model_validate(answer.json()).entries


def test_run_and_single_trace_are_entries(server: Server) -> None:
    single, run = entries(server)
    assert run.run
    assert single.trace
    assert single.trace.error
    assert (single.run, single.name, single.states) == (None, "cut.json", {"failed": 1})
    assert single.trace.error.code == "truncated"
    assert (run.trace, run.run.name, run.traces, run.ranks, run.world_size) == (None, "gpt", 2, 2, 4)
    traces = server.api.get("/traces", params={"group": "gpt"}).json()["traces"]
    assert run.events == sum(trace["events"]["kept"] for trace in traces)
    assert run.size == run.progress.bytes == run.progress.bytes_total == sum(trace["size"] for trace in traces)
    assert run.span_ns == max(trace["bounds"]["end_ns"] - trace["bounds"]["start_ns"] for trace in traces)
    assert (run.has_gpu_work, run.states, run.damaged) == (True, {"ready": 2}, 0)
    ranks = entries(server, run=run.run.id, sort="rank", order="asc")
    assert [rank.name for rank in ranks] == ["rank0.json", "rank1.json"]


def test_filters_and_pages_of_the_library(server: Server) -> None:
    assert [entry.name for entry in entries(server, state="failed")] == ["cut.json"]
    assert [entry.name for entry in entries(server, q="RANK1 gpt")] == ["gpt"]
    assert [entry.name for entry in entries(server, gpu="true")] == ["gpt"]
    assert [entry.name for entry in entries(server, sort="name", order="asc", limit=1, offset=1)] == ["gpt"]
    page = server.api.get("/library", params={"state": "failed"}).json()
    assert (page["total"], page["traces"], page["stored"]) == (1, 1, 3)


def test_group_is_pinned_with_all_its_traces(server: Server) -> None:
    [group] = server.api.get("/groups", params={"name": "gpt"}).json()["groups"]
    for pinned in (True, False):
        changed = server.api.patch(f"/groups/{group['id']}", json={"pinned": pinned})
        assert [rank["pinned"] for rank in changed.json()["ranks"]] == [pinned, pinned]
        assert len(entries(server, pinned="true")) == pinned


def test_import_roots_are_listed(server: Server) -> None:
    assert server.api.get("/imports").json() == {"imports": [], "roots": ["/srv/runs", "/mnt/traces"]}


@pytest.mark.parametrize(("path", "target"), [("/groups", "/?kind=run"), ("/traces", "/")])
def test_addresses_of_lists_lead_to_the_library(server: Server, path: str, target: str) -> None:
    answer = httpx.get(f"{server.url}{path}", trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (307, target)


def test_unknown_path_is_a_page_for_browsers_alone(server: Server) -> None:
    page = server.api.get(f"{server.url}/nothing", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    for link in ('href="/"', 'href="/?kind=run"', 'href="/jobs"', 'href="/docs"'):
        assert link in page.text
    for path, accept in (("/nothing", "*/*"), ("/api/v1/nothing", "text/html"), ("/api/v1/traces/x", "text/html")):
        answer = server.api.get(f"{server.url}{path}", headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path


def test_path_on_the_page_of_an_unknown_path_is_escaped(server: Server) -> None:
    page = server.api.get(f"{server.url}/%3Cscript%3E", headers={"Accept": "text/html"})
    assert "<script>" not in page.text.split("<main", 1)[1]
    assert "&lt;script&gt;" in page.text

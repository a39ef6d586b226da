"""Splits, merges, overlays and their jobs over HTTP."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.analysis.training import Training
from tests.conftest import DATA
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

RANKS = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in range(2)]


@pytest.fixture(scope="module")
def trace(server: Server) -> dict[str, Any]:
    """A trace with steps."""
    return server.upload(DATA / "cpu_train_steps.pt.trace.json.gz", "steps.pt.trace.json.gz")


@pytest.fixture(scope="module")
def large(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a trace that takes seconds to split."""
    path = write_trace(tmp_path_factory.mktemp("large") / "large.json", sized(TraceShape(), 60_000_000))
    return str(server.upload(path)["id"])


@pytest.fixture(scope="module")
def ranks(server: Server) -> list[str]:
    """The ids of the two ranks of a run."""
    return [str(server.upload(path)["id"]) for path in RANKS]


def split(server: Server, trace_id: object, *, wait: float = 60, **request: object) -> Any:
    return server.api.post(f"/traces/{trace_id}/split", params={"wait": wait}, json=request)


def created_traces(server: Server, answer: Any) -> list[dict[str, Any]]:
    """Wait for the job of a response, and return the traces that it has created."""
    assert answer.status_code == 202, answer.text
    job = server.api.get(answer.headers["location"].removeprefix("/api/v1"), params={"wait": PATIENCE_S}).json()
    assert (job["state"], job["error"]) == ("done", None)
    return [server.api.get(f"/traces/{trace_id}").json() for trace_id in job["result"]["traces"]]


def makers(server: Server) -> list[psutil.Process]:
    return server.children("tracedock derive")


# -- split ---------------------------------------------------------------------------------------------------------


def test_a_trace_is_split_into_its_steps(server: Server, trace: dict[str, Any]) -> None:
    children = created_traces(server, split(server, trace["id"], by="step"))
    assert [child["name"] for child in children] == [f"steps.step{number}.pt.trace.json.gz" for number in (2, 3, 4, 5)]
    for number, child in enumerate(children, 2):
        assert (child["parent"], child["selection"]) == (trace["id"], {"steps": [number]})
        assert (child["state"], child["sha256"], child["format"]) == ("ready", None, None)
        assert number in [step["number"] for step in child["steps"]]
        assert 0 < child["events"]["kept"] < trace["events"]["kept"]
    listed = server.api.get("/traces", params={"parent": trace["id"]}).json()["traces"]
    assert [item["id"] for item in listed][: len(children)] == [child["id"] for child in children]


def test_a_child_is_a_trace_like_any_other(server: Server, trace: dict[str, Any], tmp_path: Path) -> None:
    (child,) = created_traces(server, split(server, trace["id"], selection={"steps": [3]}))
    answer = server.api.get(f"/traces/{child['id']}/download")
    assert answer.headers["content-type"] == "application/gzip"
    document = json.loads(gzip.decompress(answer.content))
    assert len(document["traceEvents"]) == child["events"]["kept"]
    part = {"of": trace["sha256"], "selection": {"steps": [3]}, "external_ids": "unknown"}
    steps = document["tracedock"]["part"].pop("steps")
    assert [rank["numbers"] for rank in steps["ranks"]] == [[3]]
    assert document["tracedock"]["part"] == part
    slices = sum(count for key, count in child["counts"].items() if key.startswith(("X|", "i|")))
    assert server.rows(child["id"], "SELECT count(*) FROM slice") == [[slices]]
    assert server.api.get(f"/traces/{child['id']}/download", params={"format": "parquet"}).status_code == 200
    refused = server.api.get(f"/traces/{child['id']}/download", params={"format": "original"})
    assert (refused.status_code, refused.json()["code"]) == (422, "no_such_form")

    again = tmp_path / "again.json.gz"
    again.write_bytes(answer.content)
    uploaded = server.upload(again)
    same = ("bounds", "counts", "events", "steps", "threads", "processes", "streams", "base_ns", "rank")
    assert {key: uploaded[key] for key in same} == {key: child[key] for key in same}
    (grandchild,) = created_traces(server, split(server, uploaded["id"], selection={"names": ["aten::*"]}))
    assert 0 < grandchild["events"]["kept"] < child["events"]["kept"]


def test_overlay_creates_a_trace_with_the_critical_path(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": Training(layers=10).events}))
    trace_id = server.upload(path)["id"]
    request = {"analysis": "critical_path", "selection": {"steps": [1]}}
    answer = server.api.post(f"/traces/{trace_id}/overlay", params={"wait": PATIENCE_S}, json=request)
    (child,) = created_traces(server, answer)
    assert (child["name"], child["parent"]) == ("steps.critical-path.pt.trace.json.gz", trace_id)
    assert child["selection"] == {"steps": [1]}
    shown = "SELECT count(*), sum(dur) FROM slice WHERE category = 'critical_path'"
    (total,) = server.api.get(f"/traces/{trace_id}/analysis/critical_path", params={"steps": 1}).json()["tables"][
        "total"
    ]["rows"]
    lasting = child["counts"]["X|critical_path"]
    start, end = total[4:6]
    assert server.rows(child["id"], shown) == [[lasting, end - start]]
    opened = server.api.get(f"/traces/{child['id']}/perfetto")
    assert (opened.status_code, opened.headers["location"]) == (307, f"/perfetto/{child['id']}/#!/viewer")


def test_impossible_overlay_is_refused_with_a_reason(server: Server, trace: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"traceEvents": Training(layers=5).events}))
    with_work = server.upload(path)
    for parent, request, code in (
        (trace, {"analysis": "critical_path"}, "not_applicable"),
        (with_work, {"analysis": "critical_path", "selection": {"steps": [7]}}, "unknown_choice"),
        (with_work, {"analysis": "operators"}, "bad_request"),
        (with_work, {}, "bad_request"),
    ):
        answer = server.api.post(f"/traces/{parent['id']}/overlay", json=request)
        assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text


def test_dry_run_of_a_split_lists_its_pieces_and_creates_none(server: Server, trace: dict[str, Any]) -> None:
    before = server.api.get("/traces", params={"parent": trace["id"]}).json()
    plan = split(server, trace["id"], by="parts", value=3, dry_run=True)
    assert plan.status_code == 200
    pieces = plan.json()["pieces"]
    assert server.api.get("/traces", params={"parent": trace["id"]}).json() == before
    children = created_traces(server, split(server, trace["id"], by="parts", value=3))
    assert [(piece["name"], piece["selection"], piece["events"], piece["counts"]) for piece in pieces] == [
        (child["name"], child["selection"], child["events"]["kept"], child["counts"]) for child in children
    ]
    assert plan.json()["events"] == sum(child["events"]["kept"] for child in children)
    assert all(piece["size"] > 0 for piece in pieces)


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ({"selection": {"streams": ["0/9"]}}, "unknown_choice", "The trace has no stream '0/9'; it has none."),
        ({"selection": {"steps": [7]}}, "unknown_choice", "The trace has no step '7'; it has 2, 3, 4, 5."),
        ({"selection": {"window": {"start_ns": 5, "end_ns": 3}}}, "bad_selection", "not after its start"),
        ({"selection": {"window": {"start_ns": 0, "end_ns": 3}}}, "nothing_selected", "None of the trace's 543 events"),
        ({"selection": {"names": ["nothing"]}}, "nothing_selected", "matches the selection"),
        ({"selection": {"names": ["re:("]}}, "bad_selection", "is not one of RE2's: missing )"),
        ({"by": "rank"}, "unknown_choice", "no ranks to split by"),
        ({"by": "stream"}, "unknown_choice", "no streams to split by"),
        ({"by": "parts"}, "bad_selection", "takes a `value`"),
        ({"by": "step", "value": 3}, "bad_selection", "takes no `value`"),
        ({"by": "size", "value": 100}, "bad_selection", "fits into 100 bytes"),
        ({"by": "parts", "value": 5000}, "bad_selection", "At most 1000 parts"),
        ({"selection": {"colour": "red"}}, "bad_request", "colour"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_impossible_split_is_refused_with_the_possible_values(
    server: Server, trace: dict[str, Any], body: dict[str, Any], code: str, reason: str, dry_run: bool
) -> None:
    answer = split(server, trace["id"], wait=0, dry_run=dry_run, **body)
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
    assert reason in answer.json()["detail"]


def test_cancelled_split_leaves_nothing(server: Server, large: str) -> None:
    columns = sorted(path.name for path in (server.data / "columns").iterdir())
    job = split(server, large, wait=0, by="parts", value=20).json()
    assert job["state"] == "running"
    cancelled = server.api.delete(f"/jobs/{job['id']}").json()
    assert (cancelled["state"], cancelled["result"]) == ("cancelled", None)
    assert makers(server) == []
    assert list((server.data / "making").iterdir()) == []
    assert sorted(path.name for path in (server.data / "columns").iterdir()) == columns
    assert server.api.get("/traces", params={"parent": large}).json()["traces"] == []
    assert server.api.delete(f"/jobs/{job['id']}").json() == cancelled  # the job has already ended


def test_job_reports_its_progress(server: Server, large: str) -> None:
    job = split(server, large, wait=0, by="parts", value=2).json()
    assert job["progress"]["events_total"] > 0
    done = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()
    assert done["progress"]["events"] == done["progress"]["events_total"] >= job["progress"]["events_total"]
    for child in done["result"]["traces"]:
        assert server.api.delete(f"/traces/{child}").status_code == 204
        assert not (server.data / "columns" / child).exists()


def test_split_ends_when_its_trace_is_deleted(server: Server, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "large.json", sized(TraceShape(), 40_000_000))
    trace_id = server.upload(path)["id"]
    job = split(server, trace_id, wait=0, by="parts", value=20).json()
    assert server.api.delete(f"/traces/{trace_id}").status_code == 204
    assert server.api.get(f"/jobs/{job['id']}").json()["state"] == "cancelled"
    assert server.api.get("/traces", params={"parent": trace_id}).json()["traces"] == []
    assert makers(server) == []


def test_split_continues_after_a_kill_of_the_server(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server()
    trace_id = server.upload(write_trace(tmp_path / "large.json", sized(TraceShape(), 30_000_000)))["id"]
    job = split(server, trace_id, wait=0, by="parts", value=5).json()
    (maker,) = makers(server)
    server.kill()
    maker.wait(20)  # the process ends with its server
    server.start()
    done = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()
    assert done["state"] == "done"
    children = server.api.get("/traces", params={"parent": trace_id}).json()["traces"]
    assert sorted(child["id"] for child in children) == sorted(done["result"]["traces"])
    assert len(children) == 5
    assert list((server.data / "making").iterdir()) == []
    assert {path.name for path in (server.data / "columns").iterdir()} == {trace_id, *done["result"]["traces"]}


def test_dying_job_process_is_restarted_a_limited_number_of_times(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(ingest_attempts=2)
    trace_id = server.upload(write_trace(tmp_path / "large.json", sized(TraceShape(), 60_000_000)))["id"]
    job = split(server, trace_id, wait=0, by="parts", value=30).json()
    killed: set[int] = set()

    def kill_another() -> bool:
        for maker in makers(server):
            if maker.pid not in killed:
                killed.add(maker.pid)
                maker.kill()
        return len(killed) == 2

    until(kill_another)
    failed = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()
    assert (failed["state"], failed["error"]["code"], failed["error"]["attempts"]) == ("failed", "job_died", 2)
    assert "was killed by SIGKILL" in failed["error"]["detail"]
    until(lambda: list((server.data / "making").iterdir()) == [])


def test_unknown_job_is_not_found(server: Server) -> None:
    for method in ("GET", "DELETE"):
        answer = server.api.request(method, "/jobs/123456")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")


# -- merge ---------------------------------------------------------------------------------------------------------


def test_ranks_are_merged_into_one_trace(server: Server, ranks: list[str]) -> None:
    answer = server.api.post(
        "/traces/merge", params={"wait": PATIENCE_S}, json={"traces": ranks, "name": "run.json.gz"}
    )
    (merged,) = created_traces(server, answer)
    originals = [server.api.get(f"/traces/{trace_id}").json() for trace_id in ranks]
    assert merged["name"] == "run.json.gz"
    assert (merged["rank"], merged["world_size"], merged["parent"]) == (None, 2, None)
    assert [(rank["rank"], rank["name"]) for rank in merged["ranks"]] == [
        (rank, path.name) for rank, path in enumerate(RANKS)
    ]
    assert all(rank["collectives"] == 2 and rank["residual_ns"]["max"] < 1_000_000 for rank in merged["ranks"])
    assert merged["ranks"][0]["shift_ns"] == 0
    assert merged["events"]["kept"] >= sum(original["events"]["kept"] for original in originals)
    named = server.rows(merged["id"], "SELECT name FROM process WHERE name GLOB 'rank * python'")
    assert sorted(named) == [["rank 0 · python"], ["rank 1 · python"]]

    children = created_traces(server, split(server, merged["id"], by="rank"))
    assert [child["selection"] for child in children] == [{"ranks": [0]}, {"ranks": [1]}]
    assert [child["counts"]["X|cpu_op"] for child in children] == [
        original["counts"]["X|cpu_op"] for original in originals
    ]


def test_merged_parts_equal_their_trace(server: Server, trace: dict[str, Any]) -> None:
    def reunited(**selection: object) -> dict[str, Any]:
        parts = [
            child["id"]
            for child in created_traces(server, split(server, trace["id"], by="parts", value=4, selection=selection))
        ]
        (whole,) = created_traces(
            server, server.api.post("/traces/merge", params={"wait": PATIENCE_S}, json={"traces": parts})
        )
        return whole

    whole = reunited(straddle="start")
    assert whole["events"] == trace["events"]
    assert (whole["counts"], whole["bounds"], whole["ranks"]) == (trace["counts"], trace["bounds"], [])
    document = server.api.get(f"/traces/{whole['id']}/download", params={"format": "json"}).json()
    assert "tracedock" not in document

    counts = reunited()["counts"]  # no part contains an arrow to another part
    assert {key: count for key, count in counts.items() if key not in ("s|fwdbwd", "f|fwdbwd")} == {
        key: count for key, count in trace["counts"].items() if key not in ("s|fwdbwd", "f|fwdbwd")
    }


def test_impossible_merge_is_refused_with_a_reason(server: Server, ranks: list[str], trace: dict[str, Any]) -> None:
    def refused(status: int = 422, **request: object) -> str:
        answer = server.api.post("/traces/merge", json=request)
        assert answer.status_code == status, answer.text
        return str(answer.json()["detail"])

    assert "with itself" in refused(traces=[ranks[0], ranks[0]])
    assert "2 ranks are given for 3" in refused(traces=[*ranks, trace["id"]], ranks=[0, 1])
    assert "Some ranks have several traces." in refused(traces=ranks, ranks=[1, 1])
    assert "is unknown; give the rank" in refused(
        traces=[ranks[0], server.upload(DATA / "cpu_stack_memory.pt.trace.json.gz")["id"]]
    )
    assert "No trace has the id" in refused(404, traces=[ranks[0], "nowhere"])
    assert "at least 2 items" in refused(traces=ranks[:1])
    assert "Input should be" in refused(traces=ranks, align="by guess")


# -- download of a selection ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cut(server: Server, trace: dict[str, Any]) -> Callable[..., Any]:
    """A function that downloads the events that a selection keeps."""
    return lambda **chosen: server.api.get(f"/traces/{trace['id']}/download", params=chosen)


def test_selection_is_downloaded_in_the_requested_format(cut: Callable[..., Any], trace: dict[str, Any]) -> None:
    packed = cut(steps=3)
    assert packed.headers["content-disposition"].endswith("steps.cut.pt.trace.json.gz")
    plain = cut(format="json", selection=json.dumps({"steps": [3]}))
    assert gzip.decompress(packed.content) == plain.content
    names = {event["name"] for event in plain.json()["traceEvents"]}
    assert "ProfilerStep#3" in names
    assert "ProfilerStep#2" not in names
    two_steps = cut(format="json", steps=[2, 3]).json()
    assert len(two_steps["traceEvents"]) > len(plain.json()["traceEvents"])
    half = (trace["bounds"]["end_ns"] - trace["bounds"]["start_ns"]) // 2
    first, second = (
        cut(format="json", phases="X", relative=True, **edge).json()["traceEvents"]
        for edge in ({"end_ns": half}, {"start_ns": half})
    )
    slices = sum(count for key, count in trace["counts"].items() if key.startswith("X|"))
    assert sum(event["ph"] == "X" for event in [*first, *second]) >= slices


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ({"steps": 77}, "unknown_choice"),
        ({"selection": "{"}, "bad_selection"),
        ({"selection": "{}", "steps": 3}, "bad_selection"),
        ({"start_ns": 9, "end_ns": 9}, "bad_selection"),
        ({"categories": "kernel"}, "unknown_choice"),
        ({"steps": 3, "format": "parquet"}, "no_such_form"),
        ({"steps": 3, "format": "original"}, "no_such_form"),
        ({"steps": 3, "order": "original"}, "bad_selection"),
        ({"steps": "three"}, "bad_request"),
    ],
)
def test_impossible_cut_is_refused_before_the_first_byte(
    cut: Callable[..., Any], chosen: dict[str, Any], code: str
) -> None:
    answer = cut(**chosen)
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text


def test_the_ui_opens_on_a_selection(server: Server, trace: dict[str, Any]) -> None:
    answer = server.api.get(f"/traces/{trace['id']}/perfetto", params={"steps": 3})
    view = answer.headers["location"].split("/")[2]
    assert view.startswith(f"{trace['id']}~")
    assert server.api.get(f"{server.url}/perfetto/{view}/").status_code == 200
    assert server.api.post(f"{server.url}/perfetto/{view}/rpc/status").status_code == 200
    sessions = server.api.get("/sessions").json()["sessions"]
    assert (trace["id"], {"steps": [3]}) in [(session["trace"], session["selection"]) for session in sessions]

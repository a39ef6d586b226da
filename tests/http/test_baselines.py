"""Baselines over HTTP: set, described with their history, listed in pages, and deleted."""

import httpx
import pytest

from service.http import shapes
from tests.http.test_groups import group_of, grouped
from tests.server import Server


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A group of two ready ranks, and their ids."""
    ids = grouped(server, tmp_path_factory.mktemp("baselines"), "run of baselines")
    return group_of(server, ids[0]), ids


def test_baseline_is_set_changed_and_deleted(server: Server, run: tuple[str, list[str]]) -> None:
    group_id, [trace, _] = run
    first = server.api.put("/baselines/main", json={"target": trace})
    assert (first.status_code, first.json()["target"], first.json()["kind"]) == (201, trace, "trace")
    second_answer = server.api.put("/baselines/main", json={"target": group_id})
    assert second_answer.status_code == 200
    second = second_answer.json()
    assert [(entry["kind"], entry["target"]) for entry in second["history"]] == [("group", group_id), ("trace", trace)]
    assert server.api.get("/baselines/main").json() == second
    shapes.Baseline.model_validate(second)
    assert server.api.delete("/baselines/main").status_code == 204
    assert code_of(server.api.get("/baselines/main")) == (404, "unknown_baseline")
    assert code_of(server.api.delete("/baselines/main")) == (404, "unknown_baseline")
    assert server.api.get(f"/traces/{trace}").status_code == 200


def test_baseline_whose_target_is_deleted_stays(server: Server, run: tuple[str, list[str]]) -> None:
    _, [_, trace] = run
    server.api.put("/baselines/gone", json={"target": trace})
    server.api.delete(f"/traces/{trace}")
    gone = server.api.get("/baselines/gone").json()
    assert (gone["target"], gone["target_name"]) == (None, "rank1.json")
    server.api.delete("/baselines/gone")


def test_baselines_are_listed_in_pages(server: Server, run: tuple[str, list[str]]) -> None:
    _, [trace, *_] = run
    for name in ("p.1", "p.2", "p.3"):
        server.api.put(f"/baselines/{name}", json={"target": trace})
    page = server.api.get("/baselines", params={"limit": 2}).json()
    shapes.Baselines.model_validate(page)
    rest = server.api.get("/baselines", params={"limit": 2, "after": page["next"]}).json()
    assert [entry["name"] for entry in (*page["baselines"], *rest["baselines"])] == ["p.1", "p.2", "p.3"]
    assert rest["next"] is None
    for name in ("p.1", "p.2", "p.3"):
        server.api.delete(f"/baselines/{name}")


@pytest.mark.parametrize("name", ["-x", "a%20b", "%C3%A9", "x" * 101])
def test_bad_names_are_refused(server: Server, run: tuple[str, list[str]], name: str) -> None:
    answer = server.api.put(f"/baselines/{name}", json={"target": run[1][0]})
    assert code_of(answer) == (400, "bad_baseline_name")


@pytest.mark.parametrize("target", ["nowhere", "\\ud800", "\\u0000", "' OR 1=1"])
def test_unknown_targets_are_refused_whatever_they_are(server: Server, target: str) -> None:
    answer = server.api.put("/baselines/main", content=f'{{"target": "{target}"}}')
    assert answer.status_code in {404, 422}, answer.text


def test_unknown_targets_are_refused(server: Server) -> None:
    assert code_of(server.api.put("/baselines/main", json={"target": "nowhere"})) == (404, "unknown_trace")
    assert server.api.put("/baselines/main", json={}).status_code == 422

"""The library: folders become runs, one list of runs and traces, and deletions that can be undone."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import DATA
from tests.link import Link
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until
from tests.web.address import address_of, query_of

RANKS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of eight ranks, and a file that is no trace."""
    folder = tmp_path_factory.mktemp("runs") / "gpt run"
    folder.mkdir()
    for rank in range(RANKS):
        shape = TraceShape(rank=rank, world_size=RANKS, seed=rank + 1, streams=(20, 7))
        write_trace(folder / f"rank{rank}.json", shape)
    (folder / "notes.txt").write_text("not a trace")
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Server]:
    """A server with a run of eight ranks, a CPU trace, a damaged trace and a failed one."""
    server = Server(tmp_path_factory.mktemp("library") / "data").start()
    for path in sorted(folder.glob("*.json")):
        params: dict[str, str | int] = {"wait": PATIENCE_S, "group": "gpt"}
        server.api.put(f"/traces/{path.name}", params=params, content=path.read_bytes())
    server.upload(DATA / "cpu_train_steps.pt.trace.json.gz", "cpu.json.gz")
    server.api.put(
        "/traces/damaged.json", params={"wait": PATIENCE_S}, content=b'{"traceEvents": [{"ph": "X", "ts": 01}]}'
    )
    server.api.put("/traces/failed.json", params={"wait": PATIENCE_S}, content=b'{"traceEvents": [{"ph": "X", "na')
    yield server
    assert server.stop() == 0


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A server for one test."""
    return start_server()


def drop(page: Page, *paths: Path) -> None:
    """Drop files or folders on the page, as a file manager does."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 90, "data": data})


def names(page: Page) -> list[str]:
    """Return the names of the rows of the list."""
    return page.locator("#rows tr .names > a").all_inner_texts()


def row_of(page: Page, name: str) -> Locator:
    return page.locator("#rows tr").filter(has=page.get_by_role("link", name=name, exact=True))


# -- adding traces ---------------------------------------------------------------------------------------------------


def test_dropped_folder_of_eight_ranks_becomes_one_run(page: Page, server: Server, folder: Path) -> None:
    page.goto(server.url)
    drop(page, folder)
    batch = page.get_by_test_id("upload-batch")
    expect(batch).to_contain_text("Run gpt run 8 traces stored")
    files = batch.get_by_test_id("upload-row").locator(".name")
    assert files.all_text_contents() == [f"gpt run/rank{rank}.json" for rank in range(RANKS)]
    expect(page.locator("#left-out")).to_contain_text("gpt run/notes.txt")
    run = page.get_by_test_id("run-row")
    expect(run.get_by_test_id("trace-state")).to_have_text("ready")
    assert names(page) == ["gpt run"]
    expect(run).to_contain_text(f"{RANKS} of {RANKS}")
    [entry] = server.api.get("/library").json()["entries"]
    expect(run).to_contain_text(f"{entry['events']:,}")

    run.get_by_test_id("unfold").click()
    expect(page.get_by_test_id("rank-row")).to_have_count(RANKS)
    assert names(page) == ["gpt run", *(f"rank{rank}.json" for rank in range(RANKS))]
    assert query_of(page) == {"open": [entry["run"]["id"]]}
    page.reload()
    expect(page.get_by_test_id("rank-row")).to_have_count(RANKS)
    run.get_by_role("link", name="gpt run", exact=True).click()
    expect(page).to_have_url(f"{server.url}/groups/{entry['run']['id']}")


def test_chosen_folder_adds_only_missing_ranks_to_its_run(page: Page, server: Server, folder: Path) -> None:
    first = min(folder.glob("*.json"))
    server.api.put(
        f"/traces/{first.name}", params={"wait": PATIENCE_S, "group": folder.name}, content=first.read_bytes()
    )
    other = server.api.post("/groups", json={"name": "other run"}).json()["id"]
    page.goto(server.url)
    page.get_by_test_id("folder-input").set_input_files(folder)
    batch = page.get_by_test_id("upload-batch")
    expect(batch).to_contain_text("8 traces stored")
    batch.locator("summary").click()
    expect(batch.get_by_test_id("upload-row").filter(has_text=first.name)).to_contain_text("in the library already")
    until(lambda: len(server.api.get("/traces", params={"group": folder.name}).json()["traces"]) == RANKS)
    assert server.api.get(f"/groups/{other}").json()["traces"] == 0


def test_folder_with_the_name_of_another_run_is_a_run_of_its_own(
    page: Page, server: Server, folder: Path, gpu_trace: Path
) -> None:
    server.api.put("/traces/x.json", params={"group": folder.name}, content=gpu_trace.read_bytes())
    page.goto(server.url)
    drop(page, folder)
    expect(page.get_by_test_id("upload-batch")).to_contain_text("Run gpt run (2) 8 traces stored")
    groups = server.api.get("/groups").json()["groups"]
    assert {group["name"]: group["traces"] for group in groups} == {"gpt run": 1, "gpt run (2)": RANKS}


def test_folders_of_ranks_belong_to_the_folder_around_them(page: Page, server: Server, tmp_path: Path) -> None:
    for run in ("a", "b"):
        for rank in range(2):
            inner = tmp_path / "experiments" / run / f"rank_{rank}"
            inner.mkdir(parents=True)
            shape = TraceShape(rank=rank, world_size=2, seed=rank + 1)
            write_trace(inner / "trace.json", shape)
    page.goto(server.url)
    drop(page, tmp_path / "experiments")
    for run in ("a", "b"):
        batch = page.get_by_test_id("upload-batch").filter(has_text=f"experiments/{run}")
        expect(batch).to_contain_text("2 traces stored")
        traces = server.api.get("/traces", params={"group": f"experiments/{run}"}).json()["traces"]
        assert sorted(trace["name"] for trace in traces) == ["rank_0.trace.json", "rank_1.trace.json"]


def test_several_dropped_files_are_single_traces(page: Page, server: Server, folder: Path) -> None:
    page.goto(server.url)
    drop(page, folder / "rank0.json", folder / "rank1.json")
    expect(page.get_by_test_id("trace-row")).to_have_count(2)
    assert server.api.get("/groups").json()["groups"] == []


@pytest.fixture
def large_folder(tmp_path: Path) -> Path:
    """A folder of four files that take seconds to send over a slow link."""
    folder = tmp_path / "large"
    folder.mkdir()
    first = write_trace(folder / "rank0.json", sized(TraceShape(), 10_000_000))
    for rank in (1, 2, 3):
        shutil.copyfile(first, folder / f"rank{rank}.json")
    return folder


def drop_slowly(page: Page, link: Link, folder: Path) -> Locator:
    """Drop a folder over a slow link, and return its row once some bytes are sent."""
    page.goto(link.url)
    expect(page.get_by_test_id("empty-state")).to_be_visible()
    link.bytes_per_s = 250_000  # 40 s a file: none is complete when the page has stalled
    drop(page, folder)
    batch = page.get_by_test_id("upload-batch")
    expect(batch).to_contain_text(re.compile(r"0 of 4 stored · .* of 40\.\d MB · .* left"))
    return batch


def test_time_left_is_known_while_bytes_are_sent_in_rare_bursts(page: Page, server: Server) -> None:
    page.goto(server.url)
    rates = page.evaluate("""async () => {
        const { Rate } = await import('/static/library/upload.js');
        const rate = new Rate();
        let now = 0;
        performance.now = () => now;
        return [[0, 0], [100, 10], [6000, 600], [6001, 1200], [12000, 1800], [12001, 2400]].map(([at, sent]) => {
            now = at;
            return Math.round(rate.add(sent));
        });
    }""")
    assert rates == [0, 0, 100, 202, 100, 200]  # a sample of a millisecond ago does not hide those before it


def test_upload_of_a_folder_resumes_on_the_next_visit(page: Page, server: Server, large_folder: Path) -> None:
    page.on("dialog", lambda dialog: dialog.accept())  # leaving during an upload asks first
    with Link(server.url) as link:
        drop_slowly(page, link, large_folder)
        until(lambda: any(path.stat().st_size for path in (server.data / "incoming").iterdir() if not path.suffix))
        page.goto("about:blank")
        link.cut()  # else what is in the sockets arrives nevertheless
        link.bytes_per_s = 1 << 30
        page.goto(link.url)
        unfinished = page.get_by_test_id("upload-left")
        expect(unfinished).to_have_count(2)
        expect(unfinished.first).to_contain_text(re.compile(r"large/rank\d\.json.*choose the folder again"))
        offsets: list[int] = []
        page.on("request", lambda request: offsets.append(int(request.headers.get("upload-offset", -1))))
        page.get_by_test_id("folder-input").set_input_files(large_folder)
        expect(page.get_by_test_id("upload-batch")).to_contain_text("4 traces stored")
    expect(unfinished).to_have_count(0)
    assert [offset for offset in offsets if offset > 0] != []
    [group] = server.api.get("/groups").json()["groups"]
    assert (group["name"], group["traces"]) == ("large", 4)


def test_upload_of_a_folder_is_cancelled(page: Page, server: Server, large_folder: Path) -> None:
    with Link(server.url) as link:
        batch = drop_slowly(page, link, large_folder)
        rows = batch.get_by_test_id("upload-row")
        expect(rows.filter(has_text="waiting")).to_have_count(2)
        rows.filter(has_text="waiting").last.get_by_role("button", name="Cancel").click()
        expect(rows).to_have_count(3)
        batch.get_by_role("button", name="Cancel all").click()
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text="Cancelled")).to_have_count(2)
        until(lambda: list((server.data / "incoming").iterdir()) == [])

        link.bytes_per_s = 1 << 30
        batch.get_by_role("button", name="Retry failed").click()
        expect(batch).to_contain_text("2 traces stored")
    [group] = server.api.get("/groups").json()["groups"]
    assert (group["name"], group["traces"]) == ("large", 2)


def test_folder_of_the_server_is_imported_with_reasons_for_files_left_out(
    page: Page, start_server: Callable[..., Server], folder: Path
) -> None:
    server = start_server(import_roots=str(folder.parent))
    page.goto(server.url)
    page.get_by_test_id("import-open").click()
    expect(page.locator("#import-roots")).to_contain_text(str(folder.parent))
    page.get_by_test_id("import-path").fill("/no/such/folder")
    page.get_by_test_id("import-run").click()
    expect(page.locator("#import-problem")).to_contain_text("is not below an import root")
    page.get_by_test_id("import-path").fill(str(folder))
    page.get_by_test_id("import-group").fill("imported")
    page.get_by_test_id("import-run").click()
    expect(page.get_by_test_id("import-row")).to_contain_text("8 traces · 1 file left out")
    expect(page.get_by_test_id("import-row")).to_contain_text("notes.txt: ")
    expect(page.locator("#import-problem")).to_be_hidden()
    expect(page.get_by_test_id("run-row")).to_contain_text("imported")
    expect(page.get_by_test_id("run-row").get_by_test_id("trace-state")).to_have_text("ready")


def test_import_is_followed_over_a_reload_and_cancelled(
    page: Page, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    server = start_server(import_roots=str(runs), import_look_s=3600)  # a watch waits so long before its first file
    page.goto(server.url)
    page.get_by_test_id("import-open").click()
    page.get_by_test_id("import-path").fill(f"{runs}/**/*.json")
    page.get_by_test_id("import-watch").check()
    page.get_by_test_id("import-run").click()
    expect(page.get_by_test_id("import-row")).to_contain_text("looking for files")
    page.reload()
    expect(page.get_by_test_id("import-watch-row")).to_contain_text("watched")
    page.get_by_test_id("import-cancel").click()
    expect(page.get_by_test_id("import-row")).to_contain_text("cancelled; the traces so far stay")
    page.get_by_test_id("import-watch-row").get_by_role("button").click()
    expect(page.get_by_test_id("import-watch-row")).to_have_count(0)
    assert server.api.get("/imports").json()["imports"] == []


def test_empty_library_explains_how_to_add_a_first_trace(
    page: Page, server: Server, gpu_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto(server.url)
    expect(page.get_by_test_id("empty-state")).to_be_visible()
    expect(page.get_by_test_id("search")).to_be_hidden()
    expect(page.get_by_test_id("start-curl")).to_contain_text(f"{server.url}/api/v1/traces/")
    run_handler(str(page.get_by_test_id("start-torch").text_content()), gpu_trace, monkeypatch)
    expect(page.get_by_test_id("run-row")).to_contain_text("my-run")
    expect(page.get_by_test_id("empty-state")).to_be_hidden()
    [trace] = server.api.get("/traces").json()["traces"]
    assert (trace["name"], trace["size"]) == ("rank5.step17.pt.trace.json.gz", gpu_trace.stat().st_size)


def run_handler(script: str, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script of the page with a profiler that exports a file."""

    class Profiler:
        step_num = 17

        @staticmethod
        def export_chrome_trace(path: str) -> None:
            shutil.copyfile(trace, path)

    profiler = ModuleType("torch.profiler")
    profiler.__dict__.update(profile=None, schedule=None)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    monkeypatch.setenv("RANK", "5")
    names: dict[str, Callable[[Profiler], None]] = {}
    exec(script.split("\nwith profile(", maxsplit=1)[0], names)
    names["upload"](Profiler())


# -- the list --------------------------------------------------------------------------------------------------------


def test_search_sort_and_filters_are_in_the_address(page: Page, library: Server) -> None:
    page.goto(library.url)
    expect(page.get_by_test_id("count")).to_have_text(f"{RANKS + 3} traces in 4 rows")
    page.get_by_role("button", name="Name").click()
    expect(page.locator("th[data-column=name]")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("#rows tr").first).to_contain_text("cpu.json.gz")
    assert names(page) == ["cpu.json.gz", "damaged.json", "failed.json", "gpt"]
    page.get_by_role("button", name="Size").click()
    expect(page.locator("#rows tr").first).to_contain_text("gpt")
    sizes = {entry["name"]: entry["size"] for entry in library.api.get("/library").json()["entries"]}
    assert names(page) == sorted(sizes, key=lambda name: -sizes[name])

    page.get_by_test_id("search").press_sequentially("JSON")
    page.get_by_test_id("filter-state").select_option("ready")
    expect(row_of(page, "failed.json")).to_have_count(0)
    page.get_by_test_id("filter-gpu").select_option("false")
    expect(page.locator("#rows tr")).to_have_count(2)
    assert names(page) == ["cpu.json.gz", "damaged.json"]
    assert query_of(page) == {"q": ["JSON"], "state": ["ready"], "gpu": ["false"], "sort": ["size"]}

    shared = page.context.new_page()
    shared.goto(address_of(page))
    expect(shared.locator("#rows tr")).to_have_count(2)
    expect(shared.get_by_test_id("search")).to_have_value("JSON")
    shared.get_by_test_id("filter-damaged").check()
    expect(shared.locator("#rows tr")).to_have_count(1)
    shared.go_back()
    expect(shared.locator("#rows tr")).to_have_count(2)
    expect(shared.get_by_test_id("filter-damaged")).not_to_be_checked()
    shared.get_by_test_id("filter-clear").click()
    expect(shared.locator("#rows tr")).to_have_count(4)
    assert query_of(shared) == {"sort": ["size"]}


def test_run_is_found_by_a_rank_and_unfolds_to_it(page: Page, library: Server) -> None:
    page.goto(f"{library.url}/?q=rank3")
    expect(page.get_by_test_id("run-row")).to_contain_text(f"1 of {RANKS} traces match")
    page.get_by_test_id("unfold").click()
    expect(page.get_by_test_id("rank-row")).to_have_count(1)
    assert names(page) == ["gpt", "rank3.json"]


def test_state_and_health_are_words_with_icons(page: Page, library: Server) -> None:
    page.goto(library.url)
    expect(row_of(page, "gpt").get_by_test_id("health")).to_have_text("complete")
    expect(row_of(page, "failed.json").get_by_test_id("trace-state")).to_have_text("failed")
    damaged = row_of(page, "damaged.json")
    expect(damaged.get_by_test_id("trace-state")).to_have_text("ready")
    expect(damaged.get_by_test_id("health")).to_have_text("1 repair")
    for icon, row in (("ready", row_of(page, "gpt")), ("failed", row_of(page, "failed.json")), ("damaged", damaged)):
        expect(row.locator(f".icon-{icon}")).to_be_visible()


def test_wasted_time_of_a_gpu_is_two_clicks_away(page: Page, server: Server, gpu_trace: Path) -> None:
    server.api.put("/traces/rank0.json", params={"wait": PATIENCE_S, "group": "gpt"}, content=gpu_trace.read_bytes())
    page.goto(server.url)
    page.get_by_test_id("unfold").click()
    page.get_by_role("link", name="rank0.json", exact=True).click()
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("%")
    expect(page.get_by_test_id("advice").locator("> li").first).to_be_in_viewport()


def test_pages_of_a_long_list_turn(page: Page, server: Server) -> None:
    content = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'
    for number in range(53):
        server.api.put(f"/traces/trace{number}.json", content=content)
    page.goto(f"{server.url}/?sort=name")
    expect(page.locator("#rows tr")).to_have_count(50)
    page.get_by_test_id("page-next").click()
    expect(page.locator("#rows tr")).to_have_count(3)
    assert names(page) == ["trace50.json", "trace51.json", "trace52.json"]
    assert query_of(page)["offset"] == ["50"]
    expect(page.locator("#page-place")).to_have_text("51\N{EN DASH}53 of 53")
    expect(page.get_by_test_id("page-next")).to_be_disabled()
    page.go_back()
    expect(page.locator("#rows tr")).to_have_count(50)


def test_selected_traces_become_a_run(page: Page, server: Server, folder: Path) -> None:
    for rank in range(2):
        server.upload(folder / f"rank{rank}.json")
    page.goto(server.url)
    expect(page.get_by_test_id("select-trace")).to_have_count(2)
    for box in page.get_by_test_id("select-trace").all():
        box.check()
    compare = urlsplit(str(page.get_by_test_id("compare").get_attribute("href")))
    ids = {trace["id"] for trace in server.api.get("/traces").json()["traces"]}
    assert (compare.path, {name for values in parse_qs(compare.query).values() for name in values}) == ("/compare", ids)
    page.get_by_test_id("group-selected").click()
    page.get_by_test_id("run-name").fill("made here")
    page.get_by_test_id("run-make").click()
    expect(page.get_by_test_id("run-row")).to_contain_text("made here")
    expect(page.get_by_test_id("merge")).to_be_hidden()


def test_run_is_pinned_with_all_its_ranks(page: Page, library: Server) -> None:
    page.goto(library.url)
    pin = row_of(page, "gpt").get_by_test_id("pin")
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    page.get_by_test_id("filter-pinned").check()
    expect(page.locator("#rows tr")).to_have_count(1)
    pin.click()
    expect(page.get_by_test_id("no-match")).to_be_visible()
    assert {trace["pinned"] for trace in library.api.get("/traces").json()["traces"]} == {False}


# -- deletions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_traces(page: Page, server: Server, gpu_trace: Path) -> list[str]:
    """The ids of two traces of a list that the page shows."""
    ids = [str(server.upload(gpu_trace, name)["id"]) for name in ("first.json", "second.json")]
    page.goto(server.url)
    expect(page.get_by_test_id("trace-row")).to_have_count(2)
    return ids


def exists(server: Server, trace_id: str) -> bool:
    return server.api.get(f"/traces/{trace_id}").status_code == 200


def test_undone_deletion_keeps_the_trace(page: Page, server: Server, two_traces: list[str]) -> None:
    row_of(page, "first.json").get_by_test_id("delete-trace").click()
    expect(page.get_by_test_id("trace-row")).to_have_count(1)
    expect(page.get_by_test_id("removal")).to_contain_text(
        re.compile(r"first\.json will be deleted in \d+ s, or when you leave this page")
    )
    expect(page.get_by_test_id("undo")).to_be_focused()
    assert exists(server, two_traces[0])
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("trace-row")).to_have_count(2)
    expect(page.get_by_test_id("removal")).to_have_count(0)
    page.goto("about:blank")
    assert all(exists(server, trace_id) for trace_id in two_traces)


def test_deletion_happens_when_its_time_is_over(page: Page, server: Server, two_traces: list[str]) -> None:
    page.clock.install()
    page.reload()
    row_of(page, "first.json").get_by_test_id("delete-trace").click()
    expect(page.get_by_test_id("removal")).to_be_visible()
    assert exists(server, two_traces[0])
    page.mouse.move(5, 5)  # time stands still while the pointer is on the message
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        page.clock.run_for(11_000)
    expect(page.get_by_test_id("removal")).to_have_count(0)
    assert [exists(server, trace_id) for trace_id in two_traces] == [False, True]


@pytest.mark.parametrize("leave", ["another page", "closed tab"])
def test_deletion_happens_when_the_page_is_left(page: Page, server: Server, two_traces: list[str], leave: str) -> None:
    for name in ("first.json", "second.json"):
        row_of(page, name).get_by_test_id("delete-trace").click()
    expect(page.get_by_test_id("removal")).to_have_count(2)
    if leave == "closed tab":
        page.context.new_page()  # the browser goes on
        page.close(run_before_unload=True)
    else:
        page.goto(f"{server.url}/jobs")
    until(lambda: not any(exists(server, trace_id) for trace_id in two_traces))


def test_refused_deletion_says_why_and_shows_the_trace_again(page: Page, server: Server, two_traces: list[str]) -> None:
    problem = '{"title": "Read only", "detail": "The token may only read.", "code": "read_only"}'
    page.route(
        f"**/traces/{two_traces[0]}",
        lambda route: route.fulfill(status=403, content_type="application/problem+json", body=problem),
    )
    row_of(page, "first.json").get_by_test_id("delete-trace").click()
    page.get_by_role("button", name="Delete now").click()
    expect(page.get_by_test_id("removal-problem")).to_contain_text("first.json was not deleted: Read only.")
    expect(page.get_by_test_id("trace-row")).to_have_count(2)


def test_run_is_deleted_with_its_ranks_after_confirmation(page: Page, server: Server, folder: Path) -> None:
    for rank in range(2):
        path = folder / f"rank{rank}.json"
        server.api.put(f"/traces/{path.name}", params={"wait": PATIENCE_S, "group": "gpt"}, content=path.read_bytes())
    page.goto(server.url)
    page.get_by_test_id("delete-run").click()
    expect(page.get_by_role("dialog")).to_contain_text("Delete 2 traces?")
    page.get_by_test_id("confirm-cancel").click()
    assert len(server.api.get("/traces").json()["traces"]) == 2
    page.get_by_test_id("delete-run").click()
    page.get_by_test_id("confirm-ok").click()
    expect(page.get_by_test_id("empty-state")).to_be_visible()
    assert server.api.get("/library").json()["stored"] == 0


def test_run_without_traces_is_removed_at_once(page: Page, server: Server) -> None:
    server.api.post("/groups", json={"name": "nothing here"})
    page.goto(server.url)
    expect(page.get_by_test_id("run-row").get_by_test_id("trace-state")).to_have_text("empty")
    expect(page.get_by_test_id("unfold")).to_be_disabled()
    page.get_by_test_id("delete-run").click()
    expect(page.get_by_test_id("empty-state")).to_be_visible()
    assert server.api.get("/groups").json()["groups"] == []


# -- other pages -----------------------------------------------------------------------------------------------------


def test_job_is_listed_with_its_progress_and_cancelled(
    page: Page, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(ingest_workers=1)
    path = write_trace(tmp_path / "large.json", sized(TraceShape(), 40_000_000))
    with path.open("rb") as file:
        trace = server.api.put("/traces/large.json", content=b"\n" + file.read()).json()
    page.goto(f"{server.url}/jobs")
    job = page.get_by_test_id("jobs-running").get_by_test_id("job-row")
    expect(job).to_contain_text("Read large.json")
    expect(job).to_contain_text(re.compile(r" of 40\.\d MB"))
    job.get_by_test_id("job-cancel").click()
    ended = page.get_by_test_id("jobs-ended").get_by_test_id("job-row")
    expect(ended).to_contain_text(re.compile(r"cancelled"))
    expect(page.get_by_test_id("jobs-running")).to_be_hidden()
    assert server.api.get(f"/traces/{trace['id']}").json()["state"] == "failed"


@pytest.mark.parametrize(
    ("path", "title", "detail"),
    [
        ("nope<i>/perfetto", "There is no such trace", "nope<i>"),
        ("{id}/perfetto?slice=id:99999999", "There is no such slice", "No slice has the id 99999999"),
        ("{id}/perfetto?source=elsewhere", "The request can't be understood", "original"),
        ("nope/report", "There is no such trace", "nope"),
    ],
)
def test_link_that_can_not_be_opened_shows_why(page: Page, library: Server, path: str, title: str, detail: str) -> None:
    trace = library.api.get("/traces", params={"limit": 1, "state": "ready"}).json()["traces"][0]["id"]
    link = f"/traces/{path.format(id=trace)}"
    answer = page.goto(f"{library.url}/api/v1{link}")
    assert answer is not None
    assert answer.status == library.api.get(link).status_code
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_test_id("problem")).to_contain_text(detail)
    assert library.api.get(link).json()["title"] == title, "scripts get JSON"
    page.get_by_test_id("not-found").get_by_role("link", name="Traces").click()
    expect(page.get_by_test_id("trace-list")).to_be_visible()


def test_unknown_address_shows_what_exists(page: Page, library: Server) -> None:
    page.goto(f"{library.url}/run")
    expect(page.get_by_test_id("not-found")).to_contain_text("There is no page at /run")
    page.get_by_test_id("not-found").get_by_role("link", name="Runs").click()
    expect(page.get_by_test_id("run-row")).to_have_count(1)
    assert names(page) == ["gpt"]
    page.goto(f"{library.url}/groups")
    expect(page).to_have_url(f"{library.url}/?kind=run")
    expect(page.get_by_test_id("filter-kind")).to_have_value("run")

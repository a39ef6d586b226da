"""Our copy of the Perfetto UI opens any trace in any number of tabs, and contacts no other host."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil
import pytest
from playwright.sync_api import Browser, Error, Route, expect

from tests.analysis.training import Training
from tests.conftest import SHARED, needs_shared
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S, until
from tests.web.conftest import OpenContext, gated_engine, patient
from tests.web.other_hosts import BrowserLog, RefusingProxy
from tests.web.overlaps import write_overlaps
from tests.web.viewer import Viewer

KERNEL_OF_STREAM_7_ALONE = """
    with kernel as (
        select slice.name, count(*) as n from slice
        join thread_track on slice.track_id = thread_track.id join thread using (utid)
        where slice.category = 'kernel' and instr(slice.name, '*') = 0
        group by slice.name having min(tid) = 7 and max(tid) = 7 order by n desc limit 1
    )
    select kernel.name, count(*) from kernel join slice on instr(slice.name, kernel.name)
"""
SGEMMS = "select count(*) from slice where name glob '*sgemm*'"

THIRTY_FRAMES = """() => new Promise((resolve) => {
  const count = (left) => (left ? requestAnimationFrame(() => count(left - 1)) : resolve());
  count(30);
})"""

# Counts the redraws that answers of the engine ask for, while an open trace loads and after that.
COUNTED_REDRAWS = """
  let ui;
  window.redraws = { loading: 0, loaded: 0 };
  Object.defineProperty(window, 'app', {
    get: () => ui,
    set: (app) => {
      ui = app;
      const redraw = app.raf.scheduleFullRedraw;
      app.raf.scheduleFullRedraw = function (...args) {
        const isForAnswer = new Error().stack.includes('onRpcResponse');
        if (isForAnswer && app.trace) window.redraws[app.isLoadingTrace ? 'loading' : 'loaded']++;
        return redraw.apply(this, args);
      };
    },
  });
"""


def url_of(server: Server, trace_id: object) -> str:
    return f"{server.url}/api/v1/traces/{trace_id}/perfetto"


def gpu_process(server: Server, trace_id: object) -> str:
    """Return the title of the UI's group of tracks with the streams of a GPU."""
    [[name]] = server.rows(
        trace_id, "select distinct process.name from thread join process using (upid) where tid = 7 and pid = 0"
    )
    return str(name)


def test_button_opens_the_ui_on_the_trace_with_stream_7(
    server: Server, open_context: OpenContext, real_trace: Path
) -> None:
    trace_id = server.upload(real_trace)["id"]
    [[kernel, count]] = server.rows(trace_id, KERNEL_OF_STREAM_7_ALONE)
    context = open_context()
    page = context.new_page()
    page.goto(f"{server.url}/traces/{trace_id}")
    with context.expect_page() as opened:
        page.get_by_test_id("open-perfetto").click()
    viewer = Viewer(opened.value)
    viewer.expect_tracks()
    expect(viewer.page).to_have_title(f"{real_trace.name} - Perfetto UI")
    expect(viewer.page.locator(".pf-sidebar__trace-file-name")).to_have_text(real_trace.name)

    expect(viewer.track(gpu_process(server, trace_id))).to_be_visible()
    expect(viewer.track("stream 7")).to_be_visible()
    assert viewer.search(str(kernel)) == count
    expect(viewer.details()).to_contain_text(str(kernel))
    expect(viewer.details()).to_contain_text(re.compile(r"Thread\s*stream 7"))
    viewer.expect_no_dialog()


def test_tabs_on_two_traces_work_while_scripts_run_sql(
    server: Server, open_context: OpenContext, gpu_id: str, tmp_path: Path
) -> None:
    other_path = write_trace(tmp_path / "other.json", TraceShape(kernels=40, streams=(7, 33), seed=2))
    other_id = server.upload(other_path)["id"]
    counts = {trace_id: server.rows(trace_id, SGEMMS) for trace_id in (gpu_id, other_id)}
    assert [[0]] != counts[gpu_id] != counts[other_id] != [[0]]
    done = Event()

    def ask(trace_id: object) -> int:
        trace = 0
        while not done.is_set():
            assert server.rows(trace_id, SGEMMS) == counts[trace_id]
            trace += 1
        return trace

    with ThreadPoolExecutor() as scripts:
        asking = [scripts.submit(ask, trace_id) for trace_id in (gpu_id, gpu_id, other_id)]
        try:
            context = open_context()
            tabs = [(trace_id, context.new_page()) for trace_id in (gpu_id, gpu_id, other_id)]
            for trace_id, page in tabs:
                page.goto(url_of(server, trace_id), wait_until="commit")
            viewers = [(trace_id, Viewer(page)) for trace_id, page in tabs]
            for trace_id, viewer in viewers:
                viewer.page.bring_to_front()
                viewer.expect_tracks()
                expect(viewer.track("stream 7")).to_be_visible()
                expect(viewer.track("stream 33")).to_have_count(int(trace_id == other_id))
                assert [[viewer.search("sgemm")]] == counts[trace_id]

            again = viewers[0][1]
            again.page.bring_to_front()
            again.page.reload()
            again.expect_tracks()
            assert [[again.search("sgemm")]] == counts[gpu_id]
            for _, viewer in viewers:
                viewer.expect_no_dialog()
        finally:
            done.set()
        assert all(future.result() > 0 for future in asking)


def test_ui_at_localhost_contacts_no_other_host(server: Server, open_context: OpenContext, gpu_id: str) -> None:
    context = open_context()
    trace: list[str] = []
    context.on("request", lambda request: trace.append(request.url))
    viewer = Viewer.open(context.new_page(), url_of(server, gpu_id).replace("127.0.0.1", "localhost"))
    assert viewer.search("sgemm") > 0
    assert any(url.startswith("http://localhost:") for url in trace)
    # `open_context` asserts that all requests go to our host


def test_requests_of_pages_and_workers_to_other_hosts_are_detected(
    browser: Browser, refusing_proxy: RefusingProxy
) -> None:
    """Verify that the fixtures of the other tests detect such requests."""
    context = patient(browser.new_context(proxy={"server": refusing_proxy.address}))
    log = BrowserLog(context)
    page = context.new_page()
    page.evaluate("fetch('http://elsewhere.example/page').catch(() => null)")
    page.evaluate(
        """new Promise((resolve) => {
            const source = "fetch('http://elsewhere.example/worker').catch(() => 0).then(() => postMessage(0))";
            new Worker(URL.createObjectURL(new Blob([source]))).onmessage = resolve;
        })"""
    )
    page.evaluate("new Promise((end) => { new WebSocket('ws://elsewhere.example/socket').onclose = () => end(); })")
    context.close()
    assert log.hosts() == {"elsewhere.example"}
    proxied = " ".join(refusing_proxy.requests)
    assert "http://elsewhere.example/page" in proxied
    assert "http://elsewhere.example/worker" in proxied
    assert "CONNECT elsewhere.example" in proxied


def test_content_security_policy_blocks_other_hosts(
    server: Server, browser: Browser, refusing_proxy: RefusingProxy, gpu_id: str
) -> None:
    context = patient(browser.new_context(proxy={"server": refusing_proxy.address, "bypass": "127.0.0.1"}))
    viewer = Viewer.open(context.new_page(), url_of(server, gpu_id))
    with pytest.raises(Error, match="Failed to fetch"):
        viewer.page.evaluate("fetch('http://elsewhere.example/')")
    context.close()
    assert refusing_proxy.requests == []


def test_sql_tables_survive_the_attach_and_reload_of_a_ui(
    server: Server, open_context: OpenContext, gpu_trace: Path
) -> None:
    trace_id = server.upload(gpu_trace, "mine.json")["id"]
    server.rows(trace_id, "create perfetto table mine as select 42 as answer")
    viewer = Viewer.open(open_context().new_page(), url_of(server, trace_id))
    viewer.page.reload()
    viewer.expect_tracks()
    assert server.rows(trace_id, "select answer from mine") == [[42]]


def test_ui_shows_that_the_engine_is_loading(
    start_server: Callable[..., Server], open_context: OpenContext, gpu_trace: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    server = start_server(engine=gated_engine(tmp_path, gate), engine_sandbox="off")
    trace_id = server.upload(gpu_trace)["id"]

    page = open_context().new_page()
    page.goto(url_of(server, trace_id))
    viewer = Viewer(page)
    expect(viewer.notice).to_have_text(re.compile(r"^The engine is loading the trace: \d+ MB so far\.$"))
    gate.write_text("go")
    viewer.expect_tracks()


def test_ui_opens_the_trace_although_the_status_comes_late(
    server: Server, open_context: OpenContext, gpu_id: str
) -> None:
    server.rows(gpu_id, "select 1")
    page = open_context().new_page()
    page.clock.install()
    held: list[Route] = []
    page.route("**/rpc/status", lambda route: held.append(route))  # noqa: PLW0108 - Playwright refuses a method
    page.goto(url_of(server, gpu_id), wait_until="commit")
    until(lambda: page.evaluate("1") and len(held) == 2)  # the UI's at its start, and ours or the UI's for the trace
    page.clock.fast_forward(10_000)
    for route in held:
        route.continue_()
    Viewer(page).expect_tracks()


def test_engine_that_cannot_start_is_reported(
    start_server: Callable[..., Server], open_context: OpenContext, gpu_trace: Path, tmp_path: Path
) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    script.chmod(0o755)
    server = start_server(engine=script, engine_sandbox="off")
    trace_id = server.upload(gpu_trace)["id"]
    page = open_context().new_page()
    page.goto(url_of(server, trace_id))
    expect(Viewer(page).notice).to_contain_text("The trace can't be opened.")
    expect(Viewer(page).notice).to_contain_text("out of luck")


def test_killed_engine_is_reported_and_a_reload_starts_a_new_one(
    server: Server, open_context: OpenContext, gpu_trace: Path
) -> None:
    trace_id = server.upload(gpu_trace, "killed.json")["id"]
    viewer = Viewer.open(open_context().new_page(), url_of(server, trace_id))
    group = gpu_process(server, trace_id)
    engine = psutil.Process(server.api.get(f"/traces/{trace_id}/session").json()["engine"]["pid"])
    engine.kill()
    engine.wait()

    viewer.click(group)  # the UI queries the summary that it draws for a collapsed group
    expect(viewer.notice).to_contain_text("out of reach until this page is reloaded. The engine was killed by SIGKILL.")
    viewer.expect_no_dialog()
    viewer.notice.get_by_role("button", name="Reload").click()
    viewer.expect_tracks()
    expect(viewer.track("stream 7")).to_be_visible()


def test_lost_server_is_reported(
    start_server: Callable[..., Server], open_context: OpenContext, gpu_trace: Path
) -> None:
    server = start_server()
    trace_id = server.upload(gpu_trace)["id"]
    viewer = Viewer.open(open_context().new_page(), url_of(server, trace_id))
    server.kill()
    expect(viewer.notice).to_contain_text("The connection to the server is lost.")
    viewer.expect_no_dialog()
    server.start()
    viewer.notice.get_by_role("button", name="Reload").click()
    viewer.expect_tracks()


def test_tracks_are_shown_although_the_style_sheet_comes_last(
    server: Server, open_context: OpenContext, gpu_id: str
) -> None:
    server.rows(gpu_id, "select 1")
    page = open_context().new_page()
    held: list[Route] = []
    page.route("**/perfetto.css", lambda route: held.append(route))  # noqa: PLW0108 - Playwright refuses a method
    with page.expect_response(lambda response: response.url.endswith("/session?wait=1&args=all")):
        page.goto(url_of(server, gpu_id), wait_until="commit")
        page.wait_for_function("Boolean(window.app)")
    page.evaluate(THIRTY_FRAMES)
    assert page.evaluate("Boolean(app.trace)") is False
    for route in held:
        route.continue_()
    Viewer(page).expect_tracks()


def test_ui_reads_the_width_of_names_that_it_shows_although_our_modules_come_last(
    server: Server, open_context: OpenContext, gpu_id: str
) -> None:
    page, held = open_context().new_page(), list[Route]()
    page.add_init_script("""
        const read = CSSStyleDeclaration.prototype.getPropertyValue;
        window.widths = [];
        CSSStyleDeclaration.prototype.getPropertyValue = function (name) {
            const value = read.call(this, name);
            if (name === "--track-shell-width") window.widths.push(value);
            return value;
        };
    """)
    page.route("**/static/timeline.js", lambda route: held.append(route))  # noqa: PLW0108 - Playwright refuses a method
    page.goto(url_of(server, gpu_id), wait_until="commit")
    page.wait_for_function("window.widths?.length")
    for route in held:
        route.continue_()
    Viewer(page).expect_tracks()
    shown = page.locator(".pf-track__shell").first.bounding_box()
    assert shown
    assert {float(width.removesuffix("px")) for width in page.evaluate("window.widths")} == {shown["width"]} == {330}


def test_file_opened_in_the_ui_is_read_by_the_browser(
    server: Server, open_context: OpenContext, gpu_id: str, step_trace: Path
) -> None:
    before = server.rows(gpu_id, "select count(*) from slice")
    page = open_context().new_page()
    page.on("filechooser", lambda _: None)  # with a handler, Chromium passes its file dialogs to the test
    viewer = Viewer.open(page, url_of(server, gpu_id))
    assert other_systems(viewer) == set()
    with page.expect_file_chooser() as chooser:
        page.get_by_text("Open trace file").click()
    chooser.value.set_files(step_trace)
    expect(viewer.page).to_have_title(re.compile(re.escape(step_trace.name)))
    viewer.expect_tracks()
    assert other_systems(viewer) == {"com.android", "com.google", "org.kernel"}
    assert server.rows(gpu_id, "select count(*) from slice") == before


def other_systems(viewer: Viewer) -> set[str]:
    """Return the makers of the plugins for Android and Linux kernels that the UI has started on its trace."""
    names: list[str] = viewer.page.evaluate(
        "app.plugins.orderedPlugins.filter((plugin) => plugin.traceContext).map((plugin) => plugin.desc.id)"
    )
    makers = {".".join(name.split(".")[:2]) for name in names}
    assert "dev.perfetto" in makers
    return makers - {"dev.perfetto", "org.Chromium"}


def test_views_share_the_files_of_the_ui(server: Server, open_context: OpenContext, gpu_id: str) -> None:
    context = open_context()
    first, second = context.new_page(), context.new_page()
    Viewer.open(first, url_of(server, gpu_id))
    Viewer.open(second, f"{url_of(server, gpu_id)}?args=none")
    sizes = second.evaluate(
        "Object.fromEntries(performance.getEntriesByType('resource')"
        ".filter(({name}) => name.includes('/perfetto/files/'))"
        ".map(({name, transferSize}) => [name.split('/').at(-1), transferSize]))"
    )
    assert [sizes["frontend_bundle.js"], sizes["perfetto.css"]] == [0, 0]  # both from the browser's cache


@dataclass(frozen=True)
class Look:
    """Expected contents of the UI for a trace.

    Attributes:
        file: name of the trace's file; None for the trace of `write_overlaps`.
        tracks: titles of the expanded processes, each with the titles of its tracks, topmost first.
        steps: number of ProfilerStep slices.
        details: the name of a slice, and texts that its details show.
    """

    file: str | None
    tracks: dict[str, list[str]]
    steps: int
    details: tuple[str, list[str]]


LOOKS = {
    "made": Look(
        None,
        {
            "GPU 1 · rank 3": ["stream 7", "stream 7 · lane 2"],
            "trainer 4242 · rank 3": ["main 4242", "main 4242 · lane 2"],
        },
        1,
        ("second_gemm", ["correlation", "grid", "stream"]),
    ),
    "h100": Look(
        "h100_timesformer.pt.trace.json.gz",
        {
            "GPU 0": ["stream 7"],
            "python3 17751": ["thread 17751 (python3)", "thread 17751 (python3) · lane 2"],
        },
        2,
        ("ProfilerStep#6", ["External id", "Ev Idx"]),
    ),
    "mi300": Look(
        "mi300_resnet_rank0_of_8.pt.trace.json.gz",
        {
            "GPU 2 · rank 0": ["stream 0", "stream 0 · lane 2", "stream 4"],
            "python3 542 · rank 0": [
                "thread 542 (python3)",
                "thread 542 (python3) · lane 2",
                "thread 639 (pt_autograd_0)",
            ],
        },
        6,
        ("Optimizer.zero_grad", ["lane 2", "External id", "Ev Idx"]),
    ),
}


@pytest.mark.parametrize(
    "look", [LOOKS["made"], *(pytest.param(LOOKS[name], marks=needs_shared) for name in ("h100", "mi300"))], ids=LOOKS
)
def test_ui_shows_gpus_lanes_steps_and_arguments_and_reports_no_loss(
    server: Server, open_context: OpenContext, tmp_path: Path, look: Look
) -> None:
    trace_id = server.upload(SHARED / look.file if look.file else write_overlaps(tmp_path))["id"]
    viewer = Viewer.open(open_context().new_page(), url_of(server, trace_id))
    groups = viewer.groups()
    for process, threads in look.tracks.items():
        assert groups[process] == (True, threads)
    first, *_ = look.tracks
    assert next(iter(groups)) == first
    for title in (first, *look.tracks[first]):
        expect(viewer.track(title)).to_be_visible()

    assert viewer.search("ProfilerStep#") == look.steps
    name, arguments = look.details
    assert viewer.search(name) > 0
    expect(viewer.details()).to_contain_text(name)
    for argument in arguments:
        expect(viewer.details()).to_contain_text(argument)
    assert viewer.complaints() == []


def test_builtin_engine_of_the_ui_reports_dropped_overlaps(
    server: Server, open_context: OpenContext, gpu_id: str, tmp_path: Path
) -> None:
    """Verify that the test above can detect such a report."""
    page = open_context().new_page()
    page.on("filechooser", lambda _: None)  # with a handler, Chromium passes its file dialogs to the test
    viewer = Viewer.open(page, url_of(server, gpu_id))
    with page.expect_file_chooser() as chooser:
        page.get_by_text("Open trace file").click()
    path = write_overlaps(tmp_path)
    chooser.value.set_files(path)
    expect(page).to_have_title(re.compile(re.escape(path.name)))
    viewer.expect_tracks()
    flag, *parts = viewer.complaints()
    assert "import or data loss errors detected" in flag
    assert "Import errors" in parts


def test_critical_path_is_a_separate_track_with_arrows(
    server: Server, open_context: OpenContext, tmp_path: Path
) -> None:
    path = tmp_path / "steps.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": Training(layers=10, kernel_us=6, host_us=20).events})
    )
    trace = {"analysis": "critical_path", "selection": {"steps": [1]}}
    job = server.api.post(
        f"/traces/{server.upload(path)['id']}/overlay", params={"wait": PATIENCE_S}, json=trace
    ).json()
    viewer = Viewer.open(open_context().new_page(), url_of(server, job["result"]["traces"][0]))
    group = viewer.page.locator(".pf-track__title", has_text="Critical path").first
    expect(group).to_be_visible()
    assert viewer.search("handover") == 2
    expect(viewer.details()).to_contain_text("handover")
    expect(viewer.details()).to_contain_text("critical_path")
    expect(viewer.details()).to_contain_text("Following Flows")
    expect(viewer.details()).to_contain_text("Preceding Flows")
    assert viewer.complaints() == []


@needs_shared
def test_kernels_and_ops_of_a_real_trace_are_drawn(server: Server, open_context: OpenContext) -> None:
    trace_id = server.upload(SHARED / "v100_ddp_epoch_us.pt.trace.json.gz")["id"]
    window = "?visStart=200000000&visEnd=210000000"
    viewer = Viewer.open(open_context().new_page(), f"{server.url}/perfetto/{trace_id}/#!/viewer{window}")
    viewer.expect_drawn("stream 7", 0.9)
    viewer.expect_drawn("thread 1102 (pt_main_thread)", 0.9)
    viewer.click("GPU 0 · rank 0")
    viewer.expect_drawn("GPU 0 · rank 0", 0.9)


def test_collapsed_group_is_drawn_under_slices_longer_than_the_window(
    server: Server, open_context: OpenContext, tmp_path: Path
) -> None:
    long = {"ph": "X", "ts": 0, "dur": 1000}
    events = [
        long | {"cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9},
        long | {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}},
    ]
    path = tmp_path / "long.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace_id = server.upload(path)["id"]
    window = "?visStart=400000&visEnd=600000"
    viewer = Viewer.open(open_context().new_page(), f"{server.url}/perfetto/{trace_id}/#!/viewer{window}")
    for group, track in (("GPU 0", "stream 7"), ("process 9", "thread 9")):
        viewer.expect_drawn(track, 0.9)
        viewer.click(group)
        expect(viewer.track(track)).to_have_count(0)
        viewer.expect_drawn(group, 0.9)


@pytest.mark.parametrize("is_finished", [True, False])
def test_ui_groups_slices_to_find_unfinished_ones_only_if_there_are_some(
    server: Server, open_context: OpenContext, tmp_path: Path, *, is_finished: bool
) -> None:
    slices = [
        {"ph": "X", "ts": 20, "dur": 1} if is_finished else {"ph": "B", "ts": 20},
        {"ph": "X", "ts": 999, "dur": 1},
    ]
    events = [part | {"name": "op", "pid": 9, "tid": tid} for tid, part in enumerate(slices, start=9)]
    path = tmp_path / "unfinished.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    viewer = Viewer.open(open_context().new_page(), url_of(server, server.upload(path)["id"]))
    viewer.expect_drawn("thread 9", 0.001 if is_finished else 0.9)
    searches = viewer.queries("having dur = -1")
    assert searches
    assert all("from (select 1 from (" in search for search in searches)


def test_answers_redraw_the_page_only_once_the_trace_is_loaded(
    server: Server, step_trace: Path, open_context: OpenContext
) -> None:
    page = open_context().new_page()
    page.add_init_script(COUNTED_REDRAWS)
    Viewer.open(page, url_of(server, server.upload(step_trace)["id"]))
    page.wait_for_function("redraws.loaded")
    assert page.evaluate("redraws.loading") == 0


def test_groups_are_ordered_and_named_as_in_the_trace(
    server: Server, open_context: OpenContext, tmp_path: Path
) -> None:
    name = "/opt/conda/bin/python train.py --data /mnt/data"
    slices = [("Spans", "PyTorch Profiler", 0), ("Traces", "Trace", 0), (9, 11, 0), (9, 10, 0), (9, 9, 0), (0, 7, 5)]
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": pid, "tid": tid, "ts": 10 * ts, "dur": 1}
        for pid, tid, ts in slices
    ]
    events[-1] |= {"cat": "kernel", "args": {"device": 0, "stream": 7}}
    events += [
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "Traces", "tid": "Trace", "ts": 60},
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": name}},
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": 11, "args": {"name": "pt_autograd_0"}},
    ]
    path = tmp_path / "names.pt.trace.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 3, "world_size": 4}, "traceEvents": events}))
    viewer = Viewer.open(open_context().new_page(), url_of(server, server.upload(path)["id"]))
    assert [*viewer.groups().items()] == [
        ("GPU 0 · rank 3", (True, ["stream 7"])),
        (f"process 9 · rank 3 · {name}", (True, ["thread 9", "pt_autograd_0 11", "thread 10"])),
        ("Spans · rank 3", (False, ["PyTorch Profiler"])),
        ("Traces · rank 3", (False, ["Trace"])),
    ]


def test_minimap_shows_for_how_much_of_the_time_each_group_has_slices(
    server: Server, open_context: OpenContext, tmp_path: Path
) -> None:
    host = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 9, "tid": 9}
    events = [host | {"ts": 100, "dur": 1900}, host | {"ts": 200, "dur": 500}]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    events += [kernel | {"ts": ts, "dur": 5} for ts in range(0, 1000, 10)]
    path = tmp_path / "busy.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    viewer = Viewer.open(open_context().new_page(), url_of(server, server.upload(path)["id"]))

    gpu, process = viewer.minimap()
    for row, busy_ns, start, end in ((gpu, 500_000, 0, 995_000), (process, 1_900_000, 100_000, 2_000_000)):
        assert sum(duration * load for _, duration, load in row) == pytest.approx(busy_ns)
        assert {begin + duration for begin, duration, _ in row[:-1]} == {begin for begin, *_ in row[1:]}
        assert row[0][0] <= start < sum(row[0][:2])
        assert row[-1][0] < end <= sum(row[-1][:2])
    assert {load for _, _, load in process[1:-1]} == {1}
    sent = viewer.queries("")
    [filled] = [at for at, query in enumerate(sent) if "AS stretch" in query]
    arranged = next(at for at, query in enumerate(sent) if "_torch_track" in query)  # sent once the trace is ready
    assert filled > arranged


def test_number_of_expanded_groups_is_limited(server: Server, open_context: OpenContext, tmp_path: Path) -> None:
    tracks = [(pid, tid) for pid in range(1000, 1064) for tid in range(pid, pid + 8)]
    tracks += [(1000, tid) for tid in range(2000, 2012)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": pid, "tid": tid, "ts": 1, "dur": 1} for pid, tid in tracks
    ]
    path = tmp_path / "many.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    viewer = Viewer.open(open_context().new_page(), url_of(server, server.upload(path)["id"]))
    groups = viewer.groups()
    assert [*groups] == [f"process {pid}" for pid in range(1000, 1064)]
    assert [is_open for is_open, _ in groups.values()] == [True] * 7 + [False] * 57
    _, titles = groups["process 1000"]
    assert titles[12] == "8 more threads"
    assert len(titles) == 21


def test_ui_logs_no_warnings_about_engine_answers(server: Server, open_context: OpenContext, gpu_id: str) -> None:
    context, warnings = open_context(), list[str]()
    context.on("console", lambda message: warnings.append(message.text))
    viewer = Viewer.open(context.new_page(), url_of(server, gpu_id))
    viewer.expect_drawn("stream 7", 0.01)
    assert warnings  # the console is recorded: the UI always logs the engine that it opens
    assert [text for text in warnings if "Unexpected" in text or "not arranged" in text] == []

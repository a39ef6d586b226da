"""The Perfetto UI as on ui.perfetto.dev, on the localhost listener."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.engine.trace_processor import provision
from service.settings import Settings
from tests.ports import free_port
from tests.server import Server
from tests.web.conftest import CHROMIUM, SWITCHES, gated_engine, patient
from tests.web.folds import unfold
from tests.web.public_ui import LONGER_STATUS_TIMEOUT, ORIGIN, static_server, switches
from tests.web.viewer import Viewer

COUNT = "select count(*) as n from slice"
COUNT_IN_TAB = f"app.trace.engine.query('{COUNT}').then((rows) => rows.firstRow({{n: 0}}).n)"
OpenTab = Callable[[], Page]


@pytest.fixture(scope="module")
def ui_port() -> Iterator[int]:
    with static_server(provision.ui_path(Settings())) as port:
        yield port


@pytest.fixture(scope="module")
def listener_port() -> int:
    return free_port()


@pytest.fixture
def listening(start_server: Callable[..., Server], listener_port: int) -> Server:
    return start_server(perfetto_port=listener_port)


@pytest.fixture
def open_tab(browser: Browser, ui_port: int, listener_port: int) -> Iterator[OpenTab]:
    """Opens tabs with the UI, in a Chromium that resolves only the UI and the listener."""
    chromium = browser.browser_type.launch(executable_path=CHROMIUM, args=SWITCHES + switches(ui_port, listener_port))
    context = patient(chromium.new_context(service_workers="block"))
    context.add_init_script(LONGER_STATUS_TIMEOUT)

    def open_page() -> Page:
        page = context.new_page()
        page.on("filechooser", lambda _: None)  # with a handler, Chromium passes its file dialogs to the test
        page.goto(f"{ORIGIN}/#!/info")  # without `#!/info`, this build looks for a trace next to itself
        return page

    yield open_page
    chromium.close()


def choose(server: Server, path: Path, name: str | None = None) -> str:
    """Upload a trace, and make the listener serve it."""
    trace_id = str(server.upload(path, name)["id"])
    server.api.put("/listener", json={"trace": trace_id}).raise_for_status()
    return trace_id


def accept(page: Page) -> Viewer:
    """Answer the UI's question with yes, and wait for the tracks."""
    page.get_by_text("YES, use loaded trace", exact=True).click()
    viewer = Viewer(page)
    viewer.expect_tracks()
    return viewer


def open_file(page: Page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_text("Open trace file").click()
    chooser.value.set_files(path)


def expect_dialog(page: Page, *words: str) -> None:
    """Assert that a dialog contains the words, and that it is not the dialog that offers to file a bug."""
    dialog = page.locator(".pf-modal-dialog")
    for part in words:
        expect(dialog).to_contain_text(part)
    expect(dialog).not_to_contain_text("Oops")


def test_public_ui_offers_the_trace_by_name_and_opens_it(listening: Server, open_tab: OpenTab, gpu_trace: Path) -> None:
    trace_id = choose(listening, gpu_trace)
    page = open_tab()
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    expect_dialog(page, "127.0.0.1:9001", f"{gpu_trace.name} (Tracedock, trace {trace_id})")
    viewer = accept(page)
    [[count]] = listening.rows(trace_id, "select count(*) from slice where name glob '*sgemm*'")
    assert viewer.search("sgemm") == count
    expect(viewer.details()).to_contain_text("sgemm")
    expect(viewer.details()).to_contain_text("correlation")
    assert [[page.evaluate(COUNT_IN_TAB)]] == listening.rows(trace_id, COUNT)
    viewer.expect_no_dialog()
    assert broken == []


def test_public_ui_attaches_while_the_trace_loads(
    start_server: Callable[..., Server], open_tab: OpenTab, listener_port: int, gpu_trace: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    engine = gated_engine(tmp_path, gate)
    server = start_server(perfetto_port=listener_port, engine=engine, engine_sandbox="off")
    trace_id = choose(server, gpu_trace)
    page = open_tab()
    expect_dialog(page, gpu_trace.name)
    page.get_by_text("YES, use loaded trace", exact=True).click()
    expect(page.get_by_placeholder("Opening trace")).to_be_visible()
    assert server.api.get(f"/traces/{trace_id}/session").json()["state"] == "loading"
    gate.write_text("go")
    Viewer(page).expect_tracks()


def test_public_ui_reads_files_without_a_chosen_trace(listening: Server, open_tab: OpenTab, step_trace: Path) -> None:
    page = open_tab()
    with page.expect_response(re.compile("/status$")) as status:
        page.reload()
    assert status.value.status == 409
    open_file(page, step_trace)
    viewer = Viewer(page)
    viewer.expect_tracks()
    assert page.evaluate(COUNT_IN_TAB) > 0
    viewer.expect_no_dialog()


def test_file_opened_in_the_public_ui_is_read_by_the_browser_and_a_second_one_refused(
    listening: Server, open_tab: OpenTab, gpu_trace: Path, step_trace: Path
) -> None:
    trace_id = choose(listening, gpu_trace)
    before = listening.rows(trace_id, COUNT)
    first_tab = accept(open_tab())
    page = open_tab()
    accept(page)
    open_file(page, step_trace)
    expect(page).to_have_title(re.compile(re.escape(step_trace.name)))
    Viewer(page).expect_tracks()
    assert [[page.evaluate(COUNT_IN_TAB)]] != before

    open_file(page, step_trace)
    expect_dialog(page, "it loads no other file", 'answer "NO, Use builtin WASM"', "upload the file to Tracedock")
    assert listening.rows(trace_id, COUNT) == before
    first_tab.page.bring_to_front()
    assert [[first_tab.page.evaluate(COUNT_IN_TAB)]] == before
    assert first_tab.search("sgemm") > 0

    page.bring_to_front()
    page.reload()
    page.get_by_text("NO, Use builtin WASM", exact=True).click()
    open_file(page, step_trace)
    Viewer(page).expect_tracks()
    open_file(page, step_trace)
    Viewer(page).expect_tracks()


def test_reset_of_the_engine_for_a_large_file_is_refused_with_a_reason(
    listening: Server, open_tab: OpenTab, gpu_trace: Path, tmp_path: Path
) -> None:
    trace_id = choose(listening, gpu_trace)
    page = open_tab()
    page.get_by_text("YES, but reset state", exact=True).click()
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (40 << 20))  # the UI sends pieces of 32 MiB
    open_file(page, large)
    expect_dialog(page, "it loads no other file")
    assert listening.rows(trace_id, COUNT) != [[0]]


def test_tab_keeps_its_trace_until_that_is_deleted(
    listening: Server, open_tab: OpenTab, gpu_trace: Path, step_trace: Path
) -> None:
    first_id = choose(listening, gpu_trace)
    before = accept(open_tab())
    second_id = choose(listening, step_trace)
    counts = {trace_id: listening.rows(trace_id, COUNT) for trace_id in (first_id, second_id)}
    assert counts[first_id] != counts[second_id]
    after = accept(open_tab())
    assert [[after.page.evaluate(COUNT_IN_TAB)]] == counts[second_id]
    before.page.bring_to_front()
    assert [[before.page.evaluate(COUNT_IN_TAB)]] == counts[first_id]
    assert before.search("sgemm") > 0

    listening.api.delete(f"/traces/{first_id}").raise_for_status()
    before.page.evaluate(f"{COUNT_IN_TAB}; null")
    expect_dialog(before.page, f"The trace {first_id} was deleted.")
    after.page.bring_to_front()
    assert [[after.page.evaluate(COUNT_IN_TAB)]] == counts[second_id]


def test_trace_page_serves_the_trace_and_explains_the_dialog(
    listening: Server, listener_port: int, page: Page, gpu_trace: Path
) -> None:
    trace_id = listening.upload(gpu_trace)["id"]
    page.goto(f"{listening.url}/traces/{trace_id}")
    panel = page.get_by_test_id("listener")
    unfold(page, "listener")
    page.get_by_test_id("serve-trace").click()
    expect(panel).to_contain_text("It serves this trace now.")
    expect(panel).to_contain_text("answer “YES, use loaded trace”")
    link = panel.get_by_role("link", name="Go to ui.perfetto.dev")
    expect(link).to_have_attribute("href", f"https://ui.perfetto.dev/#!/?rpc_port={listener_port}")
    assert listening.api.get("/listener").json()["trace"] == trace_id


def test_trace_page_reports_that_the_port_is_in_use(
    start_server: Callable[..., Server], page: Page, gpu_trace: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        server = start_server(perfetto_port=occupant.getsockname()[1])
    page.goto(f"{server.url}/traces/{server.upload(gpu_trace)['id']}")
    unfold(page, "listener")
    alert = page.get_by_test_id("listener").get_by_role("alert")
    expect(alert).to_contain_text(server.api.get("/listener").json()["error"])
    expect(page.get_by_test_id("serve-trace")).to_have_count(0)

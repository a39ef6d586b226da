"""A real Chromium whose requests are all recorded, and the traces of its tests."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ProxySettings, ViewportSize, expect, sync_playwright

from service.engine.trace_processor import provision
from service.settings import Settings
from tests.conftest import SHARED, needs_shared
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S
from tests.web.other_hosts import BrowserLog, RefusingProxy

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Programs of Chromium. The first has no window around a page: an empty page takes a seventh of the processor time."""
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
OWN_ERRANDS = "AutofillServerCommunication,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,Translate"
"""Features of Chromium that contact Google; disabled, so that only requests of pages are recorded."""
SWITCHES = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", f"--disable-features={OWN_ERRANDS}",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = PATIENCE_S * 1000

OpenContext = Callable[..., BrowserContext]


def gated_engine(folder: Path, gate: Path) -> Path:
    """Create the named pipe `gate`, and a script in `folder` that starts the engine after a write to it."""
    os.mkfifo(gate)
    script = folder / "engine"
    engine = shlex.quote(str(provision.engine_path(Settings())))
    script.write_text(f'#!/bin/sh\ncat {shlex.quote(str(gate))} >/dev/null\nexec {engine} "$@"\n')
    script.chmod(0o755)
    return script


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("system")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The Chromium of the system."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: get one, as with `apt-get install chromium-headless-shell`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


def patient(context: BrowserContext) -> BrowserContext:
    """Let the browser context's pages wait as long as a busy machine takes."""
    context.set_default_timeout(PATIENCE_MS)
    return context


@pytest.fixture
def refusing_proxy() -> Iterator[RefusingProxy]:
    """A proxy that receives the browser's requests to all hosts but this machine."""
    with RefusingProxy() as proxy:
        yield proxy


@pytest.fixture
def open_context(browser: Browser, refusing_proxy: RefusingProxy) -> Iterator[OpenContext]:
    """Opens browser contexts. A test fails if a page raises an error or contacts another host."""
    opened: list[tuple[BrowserContext, BrowserLog]] = []

    def new_context(width: int = 1280, scheme: Literal["light", "dark"] = "light") -> BrowserContext:
        # requests to other than loopback addresses go to the proxy
        context = patient(
            browser.new_context(
                proxy=ProxySettings(server=refusing_proxy.address, bypass="127.0.0.1,localhost,[::1]"),
                viewport=ViewportSize(width=width, height=800),
                color_scheme=scheme,
            )
        )
        opened.append((context, BrowserLog(context)))
        return context

    yield new_context
    for context, log in opened:
        context.close()
        assert log.page_errors == []
        assert log.hosts() <= {"127.0.0.1", "localhost"}
    assert refusing_proxy.requests == []


@pytest.fixture
def page(open_context: OpenContext) -> Page:
    """A tab of a new browser context."""
    return open_context().new_page()


@pytest.fixture(scope="package")
def gpu_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps on one GPU, with NCCL on stream 7."""
    return write_trace(tmp_path_factory.mktemp("gpu") / "rank0.pt.trace.json", TraceShape(streams=(20, 7)))


@pytest.fixture(scope="package")
def gpu_id(server: Server, gpu_trace: Path) -> str:
    """`gpu_trace` on the server."""
    return str(server.upload(gpu_trace)["id"])


@pytest.fixture(scope="package")
def long_name() -> str:
    """A name that contains markup and no place to break a line."""
    return f"<img src=x onerror=window.broken=1>{'rank_of_a_very_long_run' * 6}.pt.trace.json"


@pytest.fixture(scope="package")
def long_name_id(server: Server, gpu_trace: Path, long_name: str) -> str:
    """`gpu_trace` under `long_name`."""
    return str(server.upload(gpu_trace, long_name)["id"])


@pytest.fixture(scope="package")
def failed_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace whose file ends within a string."""
    path = tmp_path_factory.mktemp("failed") / "cut.pt.trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "aten::a')
    trace = server.upload(path)
    assert trace["state"] == "failed"
    return str(trace["id"])


@pytest.fixture(scope="package")
def damaged_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A truncated trace with oddities, whose names contain markup, quotes and a secret."""
    kernel = '{"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": %d, "dur": %d, "name": "%s"}'
    names = ["<img src=x onerror=window.broken=1> C:\\data", 'say "hello" \\u202e', f"hf_{'abcDEF0123456789' * 2}\x01"]
    events = [kernel % (1000 * at, 9, name) for at, name in enumerate([*names, "k" * 300])]
    events += [kernel % (10_000, -1, "<b>backwards</b>"), "null", '{"ph": "X", "cat": "ker']
    path = tmp_path_factory.mktemp("damaged") / "damaged.pt.trace.json"
    path.write_text('{"traceEvents": [' + ", ".join(events))
    return path


@pytest.fixture(scope="package")
def damaged_id(server: Server, damaged_trace: Path) -> str:
    """`damaged_trace` on the server."""
    trace = server.upload(damaged_trace)
    assert trace["state"] == "ready"
    return str(trace["id"])


@pytest.fixture(params=["made", pytest.param("a100", marks=[needs_shared, pytest.mark.slow])])
def real_trace(request: pytest.FixtureRequest, gpu_trace: Path) -> Path:
    """A trace with a stream 7: a synthetic one, and one of an A100."""
    return gpu_trace if request.param == "made" else SHARED / "a100_nccl_3_steps.pt.trace.json.gz"

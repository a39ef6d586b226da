"""Fixtures of all tests: paths of traces, and servers."""

import re
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.server import Server

settings.register_profile("shrinking", deadline=None, max_examples=50)  # other work slows tests
# shrinking takes minutes: `--hypothesis-profile=shrinking` does it
NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
settings.register_profile("quick", deadline=None, max_examples=15, phases=NO_SHRINKING)
settings.register_profile("thorough", deadline=None, max_examples=50, phases=NO_SHRINKING)
settings.load_profile("quick")


def scaled(thorough: int) -> int:
    """Return the number of examples of a test in the loaded profile, from their number in the thorough one."""
    return max(5, thorough * settings().max_examples // settings.get_profile("thorough").max_examples)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and its children, ignore it

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "traces"

ALIKE = ("b200", "gloo_cpu_rank34", "h100_timesformer", "v100", "vllm", *(f"worker{rank}" for rank in range(1, 8)))
"""Name prefixes of real traces that take long, or that resemble others."""

LONG = (
    "test_installation.py", "web/test_overview.py", "web/test_perfetto.py", "docs/test_shown.py", "web/test_look.py",
    "web/test_library.py", "test_full_disk.py", "fleet/serving/test_server_on_cluster.py", "web/test_public_ui.py",
    "web/test_datasets.py", "web/test_opening.py", "fleet/test_windows.py", "attribution/test_links.py",
    "test_following.py", "http/test_attribution.py", "http/test_jobs.py",
    "jobs/test_ingest_child.py", "cutting/test_merge.py", "http/test_red_team_sql.py", "jobs/test_fork_server.py",
    "http/test_room.py",
    "cutting/test_children.py", "analysis/test_collectives.py", "analysis/test_answers.py", "store/test_export.py",
    "http/test_sharing.py", "jobs/test_ingest.py", "rendering/test_document.py", "test_app.py",
    "analysis/test_kernel_sequences.py",
)  # fmt: skip
"""Test files that take half a minute or more. They start first: otherwise one of them would run last, and alone."""

HARSH = (
    "test_following.py",
    "test_interruptions.py",
    "http/test_connections.py",
    "http/test_room.py",
    "http/test_sharing.py",
)
"""Test files that kill processes, cut or slow down connections, or fill disks; only `make test-system` runs them."""
_HARSH_NAME = re.compile(r"kill|full_disk|interrupt")

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")


def few_of(paths: Iterable[Path]) -> list[Any]:
    """Real traces as parameters of a test; those that are `ALIKE` are marked slow."""
    return [pytest.param(path, marks=pytest.mark.slow if path.name.startswith(ALIKE) else ()) for path in paths]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need more than the repository has or are harsh, and put those first that take long."""
    here = Path(__file__).parent
    harsh = {here / name for name in HARSH}
    for item in items:
        is_harsh = item.path in harsh or _HARSH_NAME.search(item.name.partition("[")[0])
        if is_harsh or needs_shared.mark in item.iter_markers() or SHARED in _folders(item):
            item.add_marker("system")
    order = {here / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path, len(LONG)))


def _folders(item: pytest.Item) -> set[Path]:
    """Return the folders of the paths among the parameters of a test."""
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    return {folder for parameter in parameters if isinstance(parameter, Path) for folder in parameter.parents}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A shared server for tests that neither configure nor restart it."""
    server = Server(tmp_path_factory.mktemp("server") / "data", max_engines=6).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts private servers, which the test may kill."""
    started: list[Server] = []

    def start(**settings: object) -> Server:
        server = Server(tmp_path / f"data{len(started)}", **settings).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def step_trace() -> Path:
    """A small real trace: CPU training of four steps, captured with torch 2.13."""
    return DATA / "cpu_train_steps.pt.trace.json.gz"

"""Fixtures of all tests: paths of traces, and servers."""

import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.server import Server

settings.register_profile("shrinking", deadline=None, max_examples=50)  # other work slows tests
# shrinking takes minutes: `--hypothesis-profile=shrinking` does it
settings.register_profile(
    "bounded", settings.get_profile("shrinking"), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
settings.load_profile("bounded")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and its children, ignore it

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "traces"
PATIENCE_S = 60
"""Seconds that a test waits for a sound server, which has less of a busy machine."""

ALIKE = ("b200", "gloo_cpu_rank34", "h100_timesformer", "v100", "vllm", *(f"worker{rank}" for rank in range(1, 8)))
"""Name prefixes of real traces that take long, or that resemble others."""

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")


def few_of(paths: Iterable[Path]) -> list[Any]:
    """Real traces as parameters of a test; those that are `ALIKE` are marked slow."""
    return [pytest.param(path, marks=pytest.mark.slow if path.name.startswith(ALIKE) else ()) for path in paths]


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

"""What all tests share: where traces lie, and a server."""

import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.server import Server

hypothesis.settings.register_profile("shared machine", deadline=None, max_examples=50)  # its pace tells nothing of code
hypothesis.settings.load_profile("shared machine")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and its children, ignore it

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "traces"

ALIKE = ("b200", "gloo_cpu_rank34", "h100_timesformer", "v100", "vllm", *(f"worker{rank}" for rank in range(1, 8)))
"""How real traces begin that take long, or are much like others."""

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")


def few_of(paths: Iterable[Path]) -> list[Any]:
    """Real traces as parameters of a test: those that are `ALIKE` run in the long run only."""
    return [pytest.param(path, marks=pytest.mark.slow if path.name.startswith(ALIKE) else ()) for path in paths]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that only talk to it."""
    one = Server(tmp_path_factory.mktemp("server") / "data", max_engines=6).start()
    yield one
    assert one.stop() == 0


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of a test's own, which it may kill."""
    started: list[Server] = []

    def start(**settings: object) -> Server:
        one = Server(tmp_path / f"data{len(started)}", **settings).start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="session")
def step_trace() -> Path:
    """A small real trace: CPU training of four steps, captured with torch 2.13."""
    return DATA / "cpu_train_steps.pt.trace.json.gz"

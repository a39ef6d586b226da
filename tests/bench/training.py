"""Step times of a real training of two ranks whose traces `tracedock.handler` sends, beside those of a plain export.

    TRACEDOCK_TORCH_PYTHON=python-with-torch-and-httpx python -m tests.bench.training

Both ranks share the first processor. The others are free for the server and for the handler's processes.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.server import Server

PROGRAM = Path(__file__).with_name("training_steps.py")
CLIENT = Path(__file__).parents[2] / "client"
DOWN = "http://127.0.0.1:9"
KINDS = ("handler", "export")


class Difference(NamedTuple):
    """Relative differences of paired times.

    Attributes:
        mean: their mean.
        error: standard error of the mean.
    """

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+7.2%} ± {self.error:.2%}, t = {self.mean / self.error:+.1f}"


@contextmanager
def _up(folder: Path) -> Iterator[str]:
    server = Server(folder / "data").start()
    try:
        for process in [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]:
            os.sched_setaffinity(process.pid, {1})
        yield server.url
    finally:
        server.stop()


@contextmanager
def _down(_: Path) -> Iterator[str]:
    yield DOWN


@contextmanager
def _hanging(_: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the system accepts, and nobody answers
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


STATES = {"up": _up, "down": _down, "hanging": _hanging}


class Figures(NamedTuple):
    """Figures of the cycles with a state of the server.

    Attributes:
        step_ms: median duration of a step.
        export_ms: median duration of a plain export.
        steps: how much longer the steps take with the handler.
        exports: how much longer the handler takes than an export.
    """

    step_ms: float
    export_ms: float
    steps: Difference
    exports: Difference


def measure(state: str, python: str, pairs: int) -> Figures:
    """Train with a server of this state."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(STATES[state](folder))
        launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run(
            [*launcher, PROGRAM, folder, "--pairs", str(pairs)],
            check=True, stdout=subprocess.DEVNULL,
            env=os.environ | {
                "PYTHONPATH": str(CLIENT), "TRACEDOCK_URL": url, "TRACEDOCK_SPOOL": str(folder / "spool"),
                "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            },
        )  # fmt: skip
        ranks = [json.loads((folder / f"times{rank}.json").read_bytes()) for rank in range(2)]
    cycles = {kind: [[pair[kind] for pair in both] for both in zip(*ranks, strict=True)] for kind in KINDS}
    exports = {kind: [[export for export, _ in both] for both in cycles[kind]] for kind in KINDS}
    steps = {kind: [[time for _, times in both for time in times] for both in cycles[kind]] for kind in KINDS}
    typical = [statistics.median(chain.from_iterable(times["export"])) for times in (steps, exports)]
    return Figures(1000 * typical[0], 1000 * typical[1], _difference(steps), _difference(exports))


def _difference(times: dict[str, list[list[float]]]) -> Difference:
    """Compare the mean time of each cycle with the handler, over both ranks, with that of the paired cycle."""
    pairs = zip(times["handler"], times["export"], strict=True)
    values = [statistics.fmean(handled) / statistics.fmean(plain) - 1 for handled, plain in pairs]
    return Difference(statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5)


def main() -> None:
    """Print a line for each state of the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES))
    options = parser.parse_args()
    python = os.environ.get("TRACEDOCK_TORCH_PYTHON", sys.executable)
    for state in options.states:
        step_ms, export_ms, steps, exports = measure(state, python, options.pairs)
        sys.stdout.write(f"server {state:8} step {step_ms:6.1f} ms {steps}; export {export_ms:6.1f} ms {exports}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

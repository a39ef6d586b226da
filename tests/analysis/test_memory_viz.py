"""The live bytes of snapshots, compared with what `torch.cuda._memory_viz` computes. It computes no peak in Python.

TRACEDOCK_TORCH_PYTHON names a Python with torch: `TRACEDOCK_TORCH_PYTHON=… pytest -m slow …/test_memory_viz.py`.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.analysis.conftest import Ask
from tests.conftest import SHARED
from tests.snapshots import GOLDEN, SMALL, pickled, write_large

PYTHON = os.environ.get("TRACEDOCK_TORCH_PYTHON")
INPUTS = SHARED.parent / "inputs"
SUM = """
import pickle, sys
from torch.cuda import _memory_viz
with open(sys.argv[1], "rb") as file:
    lines = _memory_viz.memory(pickle.load(file), format_flamegraph=str).splitlines()
stacks = [line.rpartition(" ") for line in lines]
print(sum(int(size) for stack, _, size in stacks if ";active_" in stack and not stack.endswith("<gaps>")))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("viz")
    (folder / "small.pickle").write_bytes(pickled(SMALL))
    write_large(folder / "large.pickle", 200_000)
    return {name: folder / f"{name}.pickle" for name in ("small", "large")} | {
        name: INPUTS / file for name, file in GOLDEN.items() if (INPUTS / file).exists()
    }


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="TRACEDOCK_TORCH_PYTHON names no Python with torch")
@pytest.mark.parametrize("name", ["small", "large", *GOLDEN])
def test_live_bytes_at_the_end_equal_those_of_memory_viz(name: str, paths: dict[str, Path], ask: Ask) -> None:
    if name not in paths:
        pytest.skip("the shared snapshots are not here")
    printed = subprocess.run([str(PYTHON), "-c", SUM, str(paths[name])], check=True, capture_output=True, text=True)

    answer = ask("memory_snapshot", paths[name], top=100_000)

    assert sum(row["end_bytes"] for row in answer["devices"]) == int(printed.stdout)
    assert sum(row["held_bytes"] for row in answer["live_stacks"]) == int(printed.stdout)

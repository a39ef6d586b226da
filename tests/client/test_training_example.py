"""The example of docs/training.md, with real torch: that of this interpreter, or of TRACEDOCK_TORCH_PYTHON."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server import Server
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("TRACEDOCK_TORCH_PYTHON") or (sys.executable if find_spec("torch") else None)

pytestmark = [pytest.mark.system, pytest.mark.skipif(PYTHON is None, reason="torch is not installed")]


@pytest.mark.parametrize("options", [["--rdzv-id", "llama"], []], ids=["named", "unnamed"])
def test_example_sends_both_ranks_and_cycles_as_one_group(
    start_server: Callable[..., Server], tmp_path: Path, options: list[str]
) -> None:
    server = start_server()
    spool = tmp_path / "spool"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    finished = subprocess.run(
        [str(PYTHON), *launcher, *options, ROOT / "docs" / "examples" / "train_ddp.py"],
        env=os.environ | {
            "PYTHONPATH": str(ROOT / "client"), "TRACEDOCK_URL": server.url, "TRACEDOCK_SPOOL": str(spool),
            "GLOO_SOCKET_IFNAME": "lo",
        },
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip

    assert finished.returncode == 0, finished.stderr
    assert list(spool.iterdir()) == []
    [group] = server.api.get("/groups").json()["groups"]
    assert group["traces"] == 4
    assert not options or group["name"] == "llama"
    traces = server.api.get("/traces").json()["traces"]
    until(lambda: all(server.api.get(f"/traces/{trace['id']}").json()["state"] == "ready" for trace in traces))
    described = [server.api.get(f"/traces/{trace['id']}").json() for trace in traces]
    assert sorted((trace["rank"], trace["world_size"]) for trace in described) == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert {len(trace["steps"]) for trace in described} == {2}
    cycles = server.api.get(f"/groups/{group['id']}").json()["cycles"]
    assert [cycle["ranks"] for cycle in cycles] == [[0, 1], [0, 1]]

from __future__ import annotations

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tracedock.launch import Launch, host, launch

from service.trace.rank import rank_in_name

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "llama"}, Launch(3, 4, "llama")),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, Launch(3, 4, None)),
        (SRUN, Launch(5, 8, "slurm-77.0")),
        (SRUN | TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, Launch(3, 4, "slurm-77.0")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}, Launch(None, None, None)),
        ({"LOCAL_RANK": "1"}, Launch(None, None, None)),
        ({"RANK": "three", "WORLD_SIZE": "4"}, Launch(None, None, None)),
        ({"RANK": "0"}, Launch(0, None, None)),
        ({}, Launch(None, None, None)),
    ],
)
def test_environment_gives_rank_world_size_and_run(environment: dict[str, str], place: Launch) -> None:
    assert launch(environment) == place


def test_initialized_process_group_decides_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 6, get_world_size=lambda: 7
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert launch(TORCHRUN) == Launch(6, 7, None)
    group.is_initialized = lambda: False
    assert launch(TORCHRUN) == Launch(3, 4, None)


def test_ranks_of_one_torchrun_share_a_run_id_and_those_of_another_do_not() -> None:
    rank = (
        "import os; os.environ['TORCHELASTIC_RUN_ID'] = 'none'\n"
        "from tracedock.launch import launch\n"
        "print(launch(dict(TORCHELASTIC_RUN_ID='none', LOCAL_WORLD_SIZE='2', WORLD_SIZE='2')).run_id)"
    )
    agent = (
        "import os, subprocess, sys\n"
        "started = {**os.environ, 'TORCHELASTIC_RUN_ID': 'none'}\n"
        "for command in ([sys.executable, '-c', sys.argv[1]], ['sh', '-c', '\"$@\"; true', 'sh', sys.executable, '-c',"
        " sys.argv[1]]):\n"
        "    subprocess.run(command, env=started, check=True)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", agent, rank], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [len(set(ids)) for ids in runs] == [1, 1]
    assert runs[0][0] != runs[1][0]
    assert runs[0][0].startswith("torchrun-")


@pytest.mark.parametrize("name", ["job-worker-3", "rank7", "Worker_12.cluster.local", "gpu07", "x.y", "---", "a/b c"])
def test_server_reads_no_rank_in_the_name_of_a_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert rank_in_name(f"{host()}.20261124T082405Z.0001.pt.trace.json.gz") is None
    assert rank_in_name(f"rank12of64.{host()}.pt.trace.json.gz") == 12

"""Rank, world size and run of this training process, as torch.distributed, torchrun or Slurm give them.

What none of them gives is None: an unknown rank never becomes rank 0.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NO_RUN_ID = ("", "none")  # torchrun's default without --rdzv-id is "none", the same for all runs
_HOST_MAX = 40


@dataclass(frozen=True)
class Launch:
    """The place of a process in its run.

    Attributes:
        rank: global rank.
        world_size: number of ranks.
        run_id: text that all ranks of the run share, and no other run has.
    """

    rank: int | None
    world_size: int | None
    run_id: str | None


def launch(environment: Mapping[str, str] | None = None) -> Launch:
    """Return the place of this process, from `environment` (default: `os.environ`) and torch.distributed."""
    variables = os.environ if environment is None else environment
    rank, world_size = _initialized_ranks() or _torchrun_ranks(variables) or _slurm_ranks(variables) or (None, None)
    return Launch(rank, world_size, _run_id(variables))


def host() -> str:
    """Return the name of this host without its domain, in letters, digits and dashes.

    The server reads a rank in a name like `worker-3`. Such a host becomes `workers-3`, because its number is no rank.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname().split(".")[0])[:_HOST_MAX].strip("-")
    return re.sub(r"(?i)(rank|worker)(?=-?\d)", r"\1s", name) or "host"


def _initialized_ranks() -> tuple[int | None, int | None] | None:
    distributed = sys.modules.get("torch.distributed")  # not imported here: only the trainer decides to load torch
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _torchrun_ranks(variables: Mapping[str, str]) -> tuple[int | None, int | None] | None:
    rank = _number(variables.get("RANK"))
    return None if rank is None else (rank, _number(variables.get("WORLD_SIZE")))


def _slurm_ranks(variables: Mapping[str, str]) -> tuple[int | None, int | None] | None:
    """Return the ranks of a task that srun started; the batch script itself has SLURM_PROCID, too, but is no rank."""
    rank = _number(variables.get("SLURM_PROCID"))
    return None if rank is None or not _slurm_step(variables) else (rank, _number(variables.get("SLURM_NTASKS")))


def _slurm_step(variables: Mapping[str, str]) -> str | None:
    return variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID")


def _run_id(variables: Mapping[str, str]) -> str | None:
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    if run_id.lower() not in _NO_RUN_ID:
        return run_id
    local, world = variables.get("LOCAL_WORLD_SIZE"), variables.get("WORLD_SIZE")
    if run_id and local is not None and local == world:  # one node: its torchrun is the parent of all ranks
        return _agent()
    if _slurm_step(variables) and variables.get("SLURM_JOB_ID"):
        return f"slurm-{variables['SLURM_JOB_ID']}.{_slurm_step(variables)}"
    return None


def _agent() -> str | None:
    """Return the host, pid and start time of the torchrun that started this process; None where there is no /proc."""
    pid = os.getppid()
    try:
        while b"TORCHELASTIC_RUN_ID=" in Path(f"/proc/{pid}/environ").read_bytes():  # a wrapper around the program
            pid = int(_stat(pid)[1])
        return f"torchrun-{host()}-{pid}-{_stat(pid)[19]}"
    except (OSError, IndexError):
        return None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5) `stat` from the third on, `state`; the second one may contain blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None

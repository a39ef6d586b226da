"""Slurm with two nodes on this machine, without systemd, for tests as root."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import until

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")


def is_installed() -> bool:
    """Return whether Slurm can be started."""
    return os.getuid() == 0 and all(map(shutil.which, PROGRAMS))


@contextmanager
def running(folder: Path, ports: list[int]) -> Iterator[dict[str, str]]:
    """Run a controller and two nodes, and yield the variables of the environment that commands of Slurm need.

    Args:
        folder: an empty folder.
        ports: four free ports.
    """
    host = socket.gethostname().partition(".")[0]
    controller, first, second, _ = ports
    for name in ("state", "spool.n1", "spool.n2"):
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        f"""
        ClusterName=one
        SlurmctldHost={host}(127.0.0.1)
        SlurmctldPort={controller}
        SlurmUser=root
        SlurmdUser=root
        AuthType=auth/munge
        AuthInfo=socket={folder}/munge.socket
        CredType=cred/munge
        StateSaveLocation={folder}/state
        SlurmdSpoolDir={folder}/spool.%n
        SlurmctldLogFile={folder}/controller.log
        SlurmdLogFile={folder}/node.%n.log
        SlurmctldPidFile={folder}/controller.pid
        SlurmdPidFile={folder}/node.%n.pid
        ProctrackType=proctrack/linuxproc
        TaskPlugin=task/none
        SwitchType=switch/none
        MpiDefault=none
        JobAcctGatherType=jobacct_gather/none
        AccountingStorageType=accounting_storage/none
        SelectType=select/cons_tres
        SelectTypeParameters=CR_Core_Memory
        SchedulerParameters=sched_interval=1,bf_interval=1
        ReturnToService=2
        SlurmdParameters=config_overrides
        CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
        KillWait=2
        NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000 State=UNKNOWN
        NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000 State=UNKNOWN
        PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
        """.replace("\n        ", "\n")
    )
    environment = {"SLURM_CONF": str(configuration)}
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    log = (folder / "started.log").open("ab")
    munge = [
        "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
        f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
    ]  # fmt: skip
    daemons = [munge, ["slurmctld", "-D", "-f", str(configuration)]]
    daemons += [["slurmd", "-D", "-f", str(configuration), "-N", node] for node in ("n1", "n2")]
    processes = []
    with log:
        try:
            for command in daemons:
                processes.append(
                    subprocess.Popen(
                        command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
                    )
                )
                if command is munge:
                    until((folder / "munge.socket").exists)
            until(lambda: _idle_nodes(environment) == 2)
            yield environment
        finally:
            subprocess.run(["scancel", "--user=root"], env={**os.environ, **environment}, check=False, stderr=log)
            until(lambda: not _jobs(environment))
            for process in reversed(processes):
                with suppress(ProcessLookupError):
                    process.terminate()
                process.wait()


def _output(environment: dict[str, str], *command: str) -> str:
    finished = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return finished.stdout.decode()


def _idle_nodes(environment: dict[str, str]) -> int:
    return _output(environment, "sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")


def _jobs(environment: dict[str, str]) -> str:
    return _output(environment, "squeue", "--noheader")

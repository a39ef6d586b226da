"""Devices and streams of an export, their names and their properties."""

from typing import Any

import numpy as np

from service.formats.nsys.allowed import DEVICES, GPUS
from service.formats.nsys.combinations import combinations
from service.formats.nsys.database import Database
from service.formats.nsys.identifiers import Flags, Ints

_PROPERTIES = {  # Kineto's names
    "totalMemory": "totalGlobalMem",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "maxRegistersPerBlock": "regsPerBlock",
    "threadsPerWarp": "warpSize",
    "maxShmemPerBlock": "sharedMemPerBlock",
    "smCount": "numSms",
    "maxRegistersPerSm": "regsPerMultiprocessor",
    "maxShmemPerBlockOptin": "sharedMemPerBlockOptin",
    "maxShmemPerSm": "sharedMemPerMultiprocessor",
}
_GPUS_MAX = 1000
_PROCESSES_MAX = 100_000
_TRACKS_MAX = 100_000
_PID_MASK = 0xFFFFFF


class Devices:
    """The devices of an export.

    A device has the number that CUDA gives it. Processes that see different devices, as with ``CUDA_VISIBLE_DEVICES``,
    give the same number to different GPUs. If an export shows that, all devices have the number of their GPU instead.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._gpus = self._numbers()
        self.tracks: set[tuple[int, int, int]] = set()
        """Device, stream and track of all work and waits."""

    def _numbers(self) -> dict[tuple[int, int], int]:
        """Return the GPU by pid and device, if it is not the same for all processes; else an empty dictionary."""
        gpus: dict[tuple[int, int], int] = {}
        if DEVICES in self._database.columns:
            rows = self._database.rows(DEVICES, ["gpuId", "cudaId", "pid"], limit=_PROCESSES_MAX)
            gpus = {
                (pid, device): gpu for _, gpu, device, pid in rows if all(type(n) is int for n in (pid, device, gpu))
            }
        return gpus if len({(device, gpu) for (_, device), gpu in gpus.items()}) > len({key[1] for key in gpus}) else {}

    def of(self, devices: Ints, processes: Ints, known: Flags) -> Ints:
        """Return the number of each device.

        Args:
            devices: number that CUDA gives it.
            processes: process that uses it; see `identifiers.process_of`.
            known: rows whose process is known.
        """
        if not self._gpus:
            return devices
        pids = np.where(known, processes & _PID_MASK, -1)
        firsts, places = combinations([pids, devices], len(devices))
        pairs = zip(pids[firsts].tolist(), devices[firsts].tolist(), strict=True)
        return np.array([self._gpus.get(pair, pair[1]) for pair in pairs], np.int64)[places]

    def note(self, device: Ints, stream: Ints, track: Ints) -> None:
        """Note the tracks of work, which get names."""
        if len(self.tracks) < _TRACKS_MAX:
            firsts, _ = combinations([device, stream, track], len(device))
            columns = (column[firsts].tolist() for column in (device, stream, track))
            self.tracks.update(zip(*columns, strict=True))

    def properties(self) -> list[dict[str, Any]]:
        """Return the properties of the GPUs, by the names that Kineto gives them."""
        if GPUS not in self._database.columns:
            return []
        columns = self._database.columns[GPUS]
        texts = ["name"] if "name" in columns else []
        described: dict[int, dict[str, Any]] = {}
        for _, *values in self._database.rows(GPUS, columns, texts, limit=_GPUS_MAX):
            gpu = dict(zip(columns, values, strict=True))
            number = gpu["id"] if self._gpus or not isinstance(gpu.get("cuDevice"), int) else gpu["cuDevice"]
            if isinstance(number, int):
                described.setdefault(number, {"id": number} | _described(gpu))
        return [described[number] for number in sorted(described)]


def _described(gpu: dict[str, Any]) -> dict[str, Any]:
    name = gpu.get("name")
    fields: dict[str, Any] = {"name": name.decode(errors="replace")} if name else {}
    fields |= {key: gpu[column] for column, key in _PROPERTIES.items() if isinstance(gpu.get(column), int)}
    warps, width = gpu.get("maxWarpsPerSm"), gpu.get("threadsPerWarp")
    if isinstance(warps, int) and isinstance(width, int):
        fields["maxThreadsPerMultiprocessor"] = warps * width
    return fields

"""Ports for servers that tests start."""

import random
import socket
from itertools import islice

import pytest


def free_port() -> int:
    """Return a free port that the kernel gives to no program that asks for any port."""
    return free_ports(1)[0]


def free_ports(count: int, *, pair: int = 0) -> list[int]:
    """Return different free ports that the kernel gives to no program that asks for any port.

    Args:
        count: number of ports.
        pair: distance from each port at which a second one must be free.
    """
    ports = random.sample(range(12_000, 32_000 - pair), 1_000)
    free = [*islice((port for port in ports if _is_free(port) and _is_free(port + pair)), count)]
    if len(free) < count:
        pytest.fail("too few ports are free")
    return free


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True

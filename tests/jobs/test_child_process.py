"""Memory allocation of child processes."""

import asyncio

import pytest

from service.jobs.children.process import start_python

POOL = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"


async def output_of(statement: str) -> str:
    process = await start_python("-m", "timeit", "-n1", "-r1", statement)
    output, _ = await process.communicate()
    return output.decode().splitlines()[0]


def test_arrow_of_a_child_allocates_from_the_system() -> None:
    assert asyncio.run(output_of(POOL)) == "system"


def test_environment_overrides_where_arrow_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert asyncio.run(output_of(POOL)) == "mimalloc"

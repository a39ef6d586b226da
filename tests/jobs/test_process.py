"""Processes that read traces."""

import asyncio

import pytest

from service.jobs.children.process import start_python

POOL = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"


async def said(statement: str) -> str:
    process = await start_python("-m", "timeit", "-n1", "-r1", statement)
    output, _ = await process.communicate()
    return output.decode().splitlines()[0]


def test_arrow_takes_its_memory_where_all_else_does() -> None:
    assert asyncio.run(said(POOL)) == "system"


def test_the_environment_may_say_where_arrow_takes_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert asyncio.run(said(POOL)) == "mimalloc"

"""The configurations of agents in the documents connect."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from service.agents.tools.catalogue import TOOLS
from service.store.tokens import Scope, Tokens
from tests.agents.agent import COMMAND, http_client
from tests.docs.pages import ROOT, blocks
from tests.server import Server

SHOWN = "http://127.0.0.1:8700"
CONFIGURATIONS = [block.text for block in blocks((ROOT / "docs" / "agents.md").read_text()) if block.language == "json"]


@asynccontextmanager
async def configured(configuration: dict[str, Any]) -> AsyncIterator[ClientSession]:
    """A session with the server of a configuration."""
    if "command" in configuration:
        assert configuration["command"] == "tracedock"
        program, *arguments = COMMAND
        arguments += configuration["args"]
        environment = os.environ | configuration["env"]
        connection = stdio_client(StdioServerParameters(command=program, args=arguments, env=environment))
        async with connection as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
            yield session
        return
    assert configuration["type"] == "http"
    async with (
        http_client(**configuration.get("headers", {})) as http,
        streamable_http_client(configuration["url"], http_client=http) as (incoming, outgoing),
        ClientSession(incoming, outgoing) as session,
    ):
        yield session


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_documented_configuration_connects(text: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with closing(Tokens(data / "tokens.sqlite")) as tokens:
        secret = tokens.add("agent", Scope.READ) if "TOKEN}" in text else ""
    server = Server(data).start()
    (configuration,) = json.loads(text.replace(SHOWN, server.url).replace("${TRACEDOCK_TOKEN}", secret))[
        "mcpServers"
    ].values()

    async def names() -> list[str]:
        async with configured(configuration) as session:
            await session.initialize()
            return [tool.name for tool in (await session.list_tools()).tools]

    try:
        assert asyncio.run(names()) == [*TOOLS]
    finally:
        assert server.stop() == 0


def test_each_way_to_connect_is_documented() -> None:
    assert len(CONFIGURATIONS) == 3

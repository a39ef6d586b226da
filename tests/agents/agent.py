"""An agent without a model: the official client of the Model Context Protocol, and what it reads from replies."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
from mcp import Client, ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.server import Server
from tests.waiting import PATIENCE_S

Result = TypeVar("Result")
Row = dict[str, str]
COMMAND = [sys.executable, "-m", "service.cli.main"]
"""Starts the command line without an installation."""


class Agent:
    """A client in a session, which counts its calls and the bytes of their replies."""

    def __init__(self, session: ClientSession | Client) -> None:
        self.session = session
        self.calls = 0
        self.bytes = 0

    async def call(self, tool: str, **arguments: Any) -> str:
        """Return the reply of a tool that succeeds."""
        is_error, text = await self.result(tool, **arguments)
        assert not is_error, text
        return text

    async def error(self, tool: str, **arguments: Any) -> str:
        """Return the error of a tool that fails."""
        is_error, text = await self.result(tool, **arguments)
        assert is_error, text
        return text

    async def result(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Return whether a call failed, and its text."""
        result = await self.session.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        (content,) = result.content
        assert isinstance(content, TextContent)
        self.calls += 1
        self.bytes += len(content.text.encode())
        return result.is_error, content.text


def http_client(token: str = "", **headers: str) -> httpx2.AsyncClient:
    """Return a client whose requests have a token and header fields."""
    fields = headers | ({"Authorization": f"Bearer {token}"} if token else {})
    return httpx2.AsyncClient(headers=fields, timeout=PATIENCE_S, trust_env=False)


@asynccontextmanager
async def over_http(server: Server, token: str = "", **headers: str) -> AsyncIterator[Agent]:
    """An agent over streamable HTTP, with the handshake of the protocol of 2025."""
    async with (
        http_client(token, **headers) as http,
        streamable_http_client(f"{server.url}/mcp", http_client=http) as (incoming, outgoing),
        ClientSession(incoming, outgoing, read_timeout_seconds=PATIENCE_S) as session,
    ):
        await session.initialize()
        yield Agent(session)


@asynccontextmanager
async def over_http_2026(server: Server, token: str = "") -> AsyncIterator[Agent]:
    """An agent over streamable HTTP, with the protocol of 2026, which has no handshake."""
    async with http_client(token) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, read_timeout_seconds=PATIENCE_S) as client:
            assert client.protocol_version == "2026-07-28"
            yield Agent(client)


@asynccontextmanager
async def over_stdio(server: Server, token: str = "") -> AsyncIterator[Agent]:
    """An agent that starts `tracedock mcp`."""
    program, *arguments = COMMAND
    environment = os.environ | {"TRACEDOCK_URL": server.url, "TRACEDOCK_TOKEN": token}
    parameters = StdioServerParameters(command=program, args=[*arguments, "mcp"], env=environment)
    async with (
        stdio_client(parameters) as (incoming, outgoing),
        ClientSession(incoming, outgoing, read_timeout_seconds=PATIENCE_S) as session,
    ):
        await session.initialize()
        yield Agent(session)


Transport = Callable[[Server], Any]
TRANSPORTS: list[Transport] = [over_http, over_http_2026, over_stdio]


def talk(transport: Any, conversation: Callable[[Agent], Awaitable[Result]]) -> Result:
    """Return the result of a conversation of an agent."""

    async def talking() -> Result:
        async with transport as agent:
            return await conversation(agent)

    return asyncio.run(talking())


def table(reply: str, name: str) -> list[Row]:
    """Return the rows of a table of a reply."""
    lines = iter(reply.splitlines())
    next(line for line in lines if line.startswith(f"# {name}: "))
    columns = next(lines).split("\t")
    rows = []
    for line in lines:
        cells = line.split("\t")
        if len(cells) != len(columns):
            break
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows

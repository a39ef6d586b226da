"""The command `mcp`: the tools for agents on standard input and output."""

# ruff: noqa: PLC0415 - only this command needs the SDK, which is slow to import

from __future__ import annotations

import typer
from tracedock.client import Client


def serve_agents(ctx: typer.Context) -> None:
    """Serve an agent on standard input and output, by the Model Context Protocol.

    The agent's program starts this command. Its tools list, describe, analyse and query the traces of the server that
    --url names. They only read.
    """
    import asyncio

    from service.agents.server import serve_stdio

    client: Client = ctx.obj

    async def serve() -> None:
        async with client.async_http() as http:
            await serve_stdio(http, client.url)

    asyncio.run(serve())

"""The command `mcp`: the tools for agents on standard input and output."""

# ruff: noqa: PLC0415 - only this command needs the SDK, which is slow to import

from __future__ import annotations

import typer


def serve_agents(ctx: typer.Context) -> None:
    """Serve an agent on standard input and output, by the Model Context Protocol.

    The agent's program starts this command. Its tools list, describe, analyse and query the traces of the server that
    --url names. They only read.
    """
    import asyncio

    from tracedock import AsyncClient

    from service.agents.server import serve_stdio

    url, token = (ctx.find_root().params[name] for name in ("url", "token"))

    async def serve() -> None:
        async with AsyncClient(url, token) as client:
            await serve_stdio(client.http, client.url)

    asyncio.run(serve())

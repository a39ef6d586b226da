"""Agents have the rights and the limits of any client of the API."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import psutil
import pytest
from mcp.shared.exceptions import MCPError

from service.store.tokens import Scope, Tokens
from tests.agents.agent import COMMAND, TRANSPORTS, Agent, Transport, over_http, over_http_2026, over_stdio, talk
from tests.http.conftest import ENDLESS
from tests.server import Server
from tests.waiting import PATIENCE_S, until

StartServer = Callable[..., Server]
PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
FIELDS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def trace(server: Server, step_trace: Path) -> str:
    """The id of a small trace on the shared server, whose engine runs."""
    trace_id = str(server.upload(step_trace, name="access of agents")["id"])
    server.rows(trace_id, "SELECT 1")
    return trace_id


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, step_trace: Path) -> Iterator[tuple[Server, str]]:
    """A server that requires a token, and a token that may only read."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    data.mkdir()
    server = Server(data).start()
    server.upload(step_trace)
    with closing(Tokens(data / "tokens.sqlite")) as tokens:
        secret = tokens.add("agent", Scope.READ)
    yield server, secret
    assert server.stop() == 0


def posted(server: Server, **fields: str) -> httpx.Response:
    return server.api.post(f"{server.url}/mcp", json=PING, headers=FIELDS | fields)


# -- rights ----------------------------------------------------------------------------------------------------------


def test_agent_without_a_valid_token_is_unauthorized(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    for fields in ({}, {"Authorization": "Bearer tdk_wrong"}):
        answer = posted(server, **fields)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
def test_token_with_read_scope_suffices(transport: Any, guarded: tuple[Server, str]) -> None:
    server, secret = guarded

    async def conversation(agent: Agent) -> tuple[str, str]:
        return await agent.call("describe", target="latest"), await agent.call(
            "query", trace="latest", sql="SELECT 1 AS one"
        )

    described, queried = talk(transport(server, secret), conversation)
    assert "steps: 4" in described
    assert queried == "# result: rows 1-1 of 1\none\n1\n"


def test_stdio_without_a_token_reports_the_refusal(guarded: tuple[Server, str]) -> None:
    async def conversation(agent: Agent) -> str:
        return await agent.error("list")

    assert talk(over_stdio(guarded[0]), conversation).startswith("unauthorized: ")


def test_revoked_token_ends_a_session_of_an_agent(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    with closing(Tokens(server.data / "tokens.sqlite")) as tokens:
        secret = tokens.add("short", Scope.READ)

        async def conversation(agent: Agent) -> None:
            await agent.call("list")
            tokens.remove("short")
            with pytest.raises(MCPError):
                await agent.call("list")

        talk(over_http(server, secret), conversation)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"Host": "evil.example"}, 421, "wrong_host"),
        ({"Origin": "https://evil.example"}, 403, "wrong_origin"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "wrong_origin"),
    ],
)
def test_foreign_host_and_origin_are_refused(fields: dict[str, str], status: int, code: str, server: Server) -> None:
    answer = posted(server, **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert posted(server).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
def test_other_methods_are_refused(method: str, server: Server) -> None:
    answer = server.api.request(method, f"{server.url}/mcp")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, OPTIONS, POST")


def test_end_of_a_session_needs_no_write_scope(guarded: tuple[Server, str]) -> None:
    server, secret = guarded
    answer = server.api.delete(f"{server.url}/mcp", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 204


def test_agents_add_nothing_to_the_audit_log(server: Server, trace: str) -> None:
    log = server.data / "audit.log"
    before = log.read_text() if log.exists() else ""

    async def conversation(agent: Agent) -> None:
        await agent.call("describe", target=trace)
        await agent.call("query", trace=trace, sql="SELECT 1")

    talk(over_http(server), conversation)
    assert (log.read_text() if log.exists() else "") == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jsonrpc": "2.0", "id": 1}', b"[" * 100_000, b"\xff\x00"])
def test_malformed_body_is_refused(body: bytes, server: Server) -> None:
    answer = server.api.post(f"{server.url}/mcp", content=body, headers=FIELDS)
    assert answer.status_code == 400


def test_large_body_is_refused(server: Server) -> None:
    answer = server.api.post(f"{server.url}/mcp", content=b" " * (5 << 20), headers=FIELDS)
    assert answer.status_code == 413


def test_requests_of_tools_have_the_identity_of_the_agent(server: Server, trace: str) -> None:
    """Each client has its own tables, so the table of an agent is visible under the same identity alone."""

    async def conversation(agent: Agent) -> str:
        await agent.call("query", trace=trace, sql="CREATE TABLE of_the_agent AS SELECT 7 AS n")
        return await agent.call("query", trace=trace, sql="SELECT n FROM of_the_agent")

    assert talk(over_http(server), conversation).endswith("\n7\n")
    dropped = server.query(trace, "DROP TABLE of_the_agent")  # the same address, and no token
    assert dropped.status_code == 200, dropped.text


# -- lifetimes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
def test_session_survives_a_restart_of_the_server(transport: Any, start_server: StartServer, step_trace: Path) -> None:
    server = start_server()
    trace_id = server.upload(step_trace)["id"]

    async def conversation(agent: Agent) -> None:
        before = await agent.call("describe", target=trace_id)
        server.kill()
        server.start()
        assert await agent.call("describe", target=trace_id) == before

    talk(transport(server), conversation)


def test_unreachable_server_is_an_error_of_the_tool(start_server: StartServer) -> None:
    server = start_server()

    async def conversation(agent: Agent) -> None:
        server.kill()
        assert (await agent.error("list")).startswith(f"unreachable: cannot reach a server at {server.url}")
        server.start()
        assert "0 of 0 rows" in await agent.call("list")

    talk(over_stdio(server), conversation)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
def test_two_agents_at_once_get_their_own_answers(transport: Transport, server: Server, trace: str) -> None:
    async def conversation(number: int) -> list[str]:
        async with transport(server) as agent:
            return [await agent.call("query", trace=trace, sql=f"SELECT {number} + {k} AS n") for k in range(5)]

    async def both() -> list[list[str]]:
        return [*await asyncio.gather(conversation(100), conversation(200))]

    answers = asyncio.run(both())
    assert [[int(text.split()[-1]) for text in texts] for texts in answers] == [
        [start + k for k in range(5)] for start in (100, 200)
    ]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
def test_cancelled_call_stops_its_query(transport: Transport, server: Server, trace: str) -> None:
    engine = server.engine(trace)

    async def conversation(agent: Agent) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_call_endless, agent, trace)
            await asyncio.to_thread(until, lambda: engine.status() == psutil.STATUS_RUNNING)
            group.cancel_scope.cancel()
        await asyncio.to_thread(_expect_idle, server, engine, trace)
        assert (await agent.call("query", trace=trace, sql="SELECT 1 AS one")).endswith("\n1\n")

    talk(transport(server), conversation)


@pytest.mark.parametrize("transport", [over_http, over_http_2026], ids=lambda transport: transport.__name__)
def test_disconnected_agent_stops_its_query(transport: Transport, server: Server, trace: str) -> None:
    engine = server.engine(trace)
    program = (
        "import asyncio, sys\n"
        "from tests.agents.agent import *\n"
        "class Shared:\n"
        "    url = sys.argv[1]\n"
        "async def main():\n"
        f"    async with {transport.__name__}(Shared) as agent:\n"
        "        await agent.call('query', trace=sys.argv[2], sql=sys.argv[3], timeout_s=10_000)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, server.url, trace, ENDLESS]) as process:
        until(lambda: engine.status() == psutil.STATUS_RUNNING)
        process.kill()
    _expect_idle(server, engine, trace)


def test_server_stops_while_an_agent_waits(start_server: StartServer, step_trace: Path) -> None:
    server = start_server()
    trace_id = str(server.upload(step_trace)["id"])
    server.rows(trace_id, "SELECT 1")
    engine = server.engine(trace_id)

    async def conversation(agent: Agent) -> None:
        with anyio.CancelScope() as waiting:
            async with anyio.create_task_group() as group:
                group.start_soon(_call_endless, agent, trace_id)
                await asyncio.to_thread(until, lambda: engine.status() == psutil.STATUS_RUNNING)
                assert await asyncio.to_thread(server.stop) == 0
                waiting.cancel()

    talk(over_http(server), conversation)
    assert "Traceback" not in Path(server.log_file.name).read_text()


async def _call_endless(agent: Agent, trace: str) -> None:
    await agent.result("query", trace=trace, sql=ENDLESS, timeout_s=10 * PATIENCE_S)


def _expect_idle(server: Server, engine: psutil.Process, trace: str) -> None:
    """Fail unless the engine answers another client, and does nothing else."""
    assert server.rows(trace, "SELECT 1") == [[1]]
    cpu_s = sum(engine.cpu_times()[:2])
    for _ in range(100):
        server.api.get(f"{server.url}/healthz")
    assert sum(engine.cpu_times()[:2]) - cpu_s < 0.05


# -- the command -----------------------------------------------------------------------------------------------------


def test_command_ends_with_its_standard_input(server: Server) -> None:
    environment = os.environ | {"TRACEDOCK_URL": server.url}
    done = subprocess.run(
        [*COMMAND, "mcp"], env=environment, input="", capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_server_loads_the_sdk_only_for_agents(start_server: StartServer) -> None:
    server = start_server()
    loaded = [file.path for file in psutil.Process(server.pid).memory_maps() if "/cryptography/" in file.path]
    assert loaded == []

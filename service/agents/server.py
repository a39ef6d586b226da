"""The MCP server of the tools, over streamable HTTP and over standard input and output."""

from collections.abc import Mapping
from typing import Any

import httpx
import orjson
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send
from tracedock.errors import ApiError, ClientError

from service import __version__
from service.agents.api import Api
from service.agents.cancelling import CallKey, Calls
from service.agents.tools.catalogue import TOOLS
from service.trace.faults import faults_of

INSTRUCTIONS = """Tracedock holds profiler traces of PyTorch programs; a run has the trace of each rank of a job.
Shortest way: `describe` the run or the trace (`latest`, a name or an id). It says what to try first, and why. Then
`analyse` with the analysis that its recommendations point to; `window` or `query` for details; `link` for the user.
Times are integers in ns. Replies are tab-separated tables within max_rows and max_bytes, and say what they leave out.
Tools only read."""
ERROR_MAX = 4_000
"""Maximum characters of an error."""
_CALLS: Calls[CallToolResult] = Calls()
"""The calls that this process works on."""


def mcp_server(api: Api) -> "Server[dict[str, Any]]":
    """Return an MCP server whose tools use an API."""

    async def list_tools(_: object, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[*_LISTED])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        key = CallKey.of(context.request, context.request_id)
        result = await _CALLS.result(key, _called(api, params.name, params.arguments or {}))
        return result or _failed("cancelled: the client has cancelled the call")

    return Server(
        "tracedock", version=__version__, title="Tracedock", instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool, get_tool_input_schema=lambda _: None,
    )  # fmt: skip


_LISTED = [
    ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema(),
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )
    for tool in TOOLS.values()
]


async def _called(api: Api, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """Call a tool; an error that the agent can act on is a result."""
    if name not in TOOLS:
        raise MCPError(INVALID_PARAMS, f"There is no tool {name!r}; there are {', '.join(TOOLS)}.")
    tool = TOOLS[name]
    try:
        reply = await tool.run(api, tool.arguments.model_validate(arguments))
    except ValidationError as error:
        faults = faults_of(error, "arguments")
        return _failed(f"bad_arguments: {faults}\nknown: {', '.join(tool.arguments.model_fields)}")
    except ApiError as error:
        extras = "".join(f"\n{key}: {_line(value)}" for key, value in error.extras.items())
        return _failed(f"{error.code}: {error.title}. {error.detail}{extras}")
    except ClientError as error:
        return _failed(f"unreachable: {error}")
    return CallToolResult(content=[TextContent(text=reply)])


def _line(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _failed(text: str) -> CallToolResult:
    cut = f"{text[:ERROR_MAX]}…[{len(text) - ERROR_MAX} more characters]" if len(text) > ERROR_MAX else text
    return CallToolResult(content=[TextContent(text=cut)], is_error=True)


async def answer_http(http: httpx.AsyncClient, url: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one HTTP request to the MCP server.

    No request depends on an earlier one, so a client notices no restart of the server. When the request ends, so does
    all work on it.

    Args:
        http: the client of the API that the tools use.
        url: the URL of the server, for links.
        scope: the ASGI scope.
        receive: receives the request.
        send: sends the response.
    """
    manager = StreamableHTTPSessionManager(mcp_server(Api(http, url)), stateless=True)
    async with manager.run():
        await manager.handle_request(scope, _CALLS.watching(scope, receive), _CALLS.naming(scope, send))


async def serve_stdio(http: httpx.AsyncClient, url: str) -> None:
    """Serve a client on standard input and output until it closes them; `http` is the client of the API at `url`."""
    server = mcp_server(Api(http, url))
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

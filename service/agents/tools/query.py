"""The tool `query`: SQL on a trace."""

from pydantic import Field

from service.agents.api import Api, Json
from service.agents.reply import Budgets, Reply, Table
from service.agents.tools.tool import Selected, Source, Tool, Trace

_REST = "LIMIT and OFFSET in the SQL page, max_rows raises the limit; better: aggregate"


class QueryArguments(Budgets):
    """Arguments of `query`."""

    trace: Trace
    sql: str = Field(min_length=1, description="statements; the reply has the rows of the last one")
    selection: Selected = None
    source: Source = None
    timeout_s: float | None = Field(None, gt=0, le=86400, description="default: that of the server")


async def run(api: Api, arguments: QueryArguments) -> str:
    """Return the rows of a query."""
    trace = await api.trace(arguments.trace)
    request: Json = {"sql": arguments.sql, "limit": arguments.max_rows, "timeout_s": arguments.timeout_s}
    if arguments.selection is not None:
        request["selection"] = arguments.selection
    if arguments.source is not None:
        request["source"] = arguments.source
    table = await api.query(trace["id"], request)
    columns = [column["name"] for column in table["columns"]]
    total = None if table["truncated"] else len(table["rows"])
    reply = Reply(arguments)
    reply.table(Table("result", columns, table["rows"], total, rest=_REST))
    return reply.text()


TOOL = Tool(
    "query",
    "Query a trace with SQL",
    "Runs PerfettoSQL on one trace, for what no analysis answers. Tables: slice(id, ts, dur, name, category, track_id,"
    " arg_set_id), args, thread, process. The package torch has views in PyTorch's terms:"
    " INCLUDE PERFETTO MODULE torch.kernels; SELECT step, name, dur, stream, op_name, delay FROM torch_kernel."
    " Also torch.steps (torch_step: step, ts, dur), torch.ops (torch_op), torch.collectives, torch.memory, torch.trace"
    " (torch_ns(ts): time on the trace's clock; torch_track). ts and dur are ns; ts begins at 0. Aggregate in SQL.",
    QueryArguments,
    run,
)

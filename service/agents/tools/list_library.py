"""The tool `list`: the runs and the single traces of the server."""

from typing import Literal

import orjson
from pydantic import Field

from service.agents.api import Api, Json, entry_id
from service.agents.reply import Budgets, Reply, Table
from service.agents.tools.tool import Offset, Tool

_COLUMNS = (
    *("kind", "id", "name", "state", "traces", "ranks", "world_size", "steps", "span_ns", "events", "size_bytes"),
    *("gpus", "uploaded_at"),
)


class ListArguments(Budgets):
    """Arguments of `list`."""

    query: str = Field("", max_length=500, description="words in the names or ids of a run, its traces or its GPUs")
    kind: Literal["run", "file", "derived"] | None = Field(
        None, description="run: the ranks of one job; file: a single trace; derived: a trace cut from others"
    )
    run: str | None = Field(None, description="id of a run: list its traces")
    offset: Offset = 0


async def run(api: Api, arguments: ListArguments) -> str:
    """Return the runs and traces that match, newest first."""
    page = await api.get(
        "library", q=arguments.query or None, kind=arguments.kind, run=arguments.run, offset=arguments.offset,
        limit=max(1, min(arguments.max_rows, 500)),
    )  # fmt: skip
    reply = Reply(arguments)
    rows = [_row(entry) for entry in page["entries"]]
    reply.table(Table("runs and traces", _COLUMNS, rows, page["total"], arguments.offset))
    return reply.text()


def _row(entry: Json) -> list[object]:
    states = entry["states"]
    return [
        "run" if entry["run"] else "trace",
        entry_id(entry),
        entry["name"],
        next(iter(states)) if len(states) == 1 else orjson.dumps(states).decode(),
        *(entry[name] for name in ("traces", "ranks", "world_size", "steps", "span_ns", "events", "size")),
        ", ".join(entry["gpus"]) or None,
        entry["uploaded_at"],
    ]


TOOL = Tool(
    "list",
    "List runs and traces",
    "Lists runs (the ranks of one job) and single traces, newest first, with their ids. Skip it if the user named one.",
    ListArguments,
    run,
)

"""The tool `link`: links that open a place for people."""

from typing import Literal
from urllib.parse import urlencode

from pydantic import Field
from tracedock.errors import ApiError

from service.agents.api import Api
from service.agents.reply import Arguments
from service.agents.tools.tool import Selected, Source, Subject, Tool, as_text


class LinkArguments(Arguments):
    """Arguments of `link`."""

    target: Subject
    show: Literal["perfetto", "page"] = Field(
        "page", description="perfetto: the Perfetto UI, of one trace; page: Tracedock's page of the trace or the run"
    )
    selection: Selected = None
    source: Source = None
    slice: str | None = Field(
        None,
        description="for perfetto, the slice to open: id:N of the SQL table slice, position:N, or at:START_NS:NAME",
    )


async def run(api: Api, arguments: LinkArguments) -> str:
    """Return a link, after the server has checked that it opens."""
    if arguments.show == "page":
        if arguments.selection is not None or arguments.source is not None or arguments.slice is not None:
            detail = "A page takes no selection, no source and no slice."
            raise ApiError("bad_arguments", "The arguments are invalid", detail, 422)
        target = await api.target(arguments.target)
        return f"{api.url}/{target.path}\n"
    trace = await api.trace(arguments.target)
    path = f"traces/{trace['id']}/perfetto"
    query = {"selection": as_text(arguments.selection), "source": arguments.source, "slice": arguments.slice}
    await api.check(path, **query)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{api.url}/api/v1/{path}{'?' if given else ''}{urlencode(given)}\n"


TOOL = Tool(
    "link",
    "Make a link for people",
    "Returns a link that a person can open: the page of a trace or a run, or the Perfetto UI at a selection or a slice."
    " Give it to the user as evidence.",
    LinkArguments,
    run,
)

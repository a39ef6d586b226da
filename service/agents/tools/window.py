"""The tool `window`: what runs in a window of a trace."""

from typing import Literal, Self

from pydantic import Field, model_validator
from tracedock.errors import ApiError

from service.agents.api import Api, Json
from service.agents.reply import Budgets, Reply, Table
from service.agents.tools.analyse import WAIT_S
from service.agents.tools.tool import Offset, Tool, Trace

_STEPS_MAX = 100_000
_TRACKS_MAX = 100_000
_BINNED_MAX = 50
"""Maximum number of tracks whose bins are shown: the busiest of each rank."""
_LISTED_MAX = 50
"""Maximum number of steps that an error lists."""
_TRACKS = ("rank", "kind", "device", "stream", "process", "thread", "busy_ns")
_BINS = ("rank", "track", "bin", "busy_ns", "compute_ns", "comm_ns", "mem_ns")
_SLICES = """INCLUDE PERFETTO MODULE torch.trace;
SELECT s.id, s.name, s.category, t.stream, t.tid, torch_ns(s.ts) AS start_ns, s.dur AS dur_ns, s.depth
FROM slice AS s LEFT JOIN torch_track AS t USING (track_id)
WHERE torch_ns(s.ts) < {end} AND torch_ns(s.ts) + s.dur > {start}
ORDER BY s.dur DESC, s.ts LIMIT {limit} OFFSET {offset}"""


class WindowArguments(Budgets):
    """Arguments of `window`."""

    trace: Trace
    step: int | None = Field(None, description="the window of this step, instead of times")
    start_ns: int | None = Field(None, ge=-(2**63), lt=2**63, description="on the trace's clock; default: its start")
    end_ns: int | None = Field(None, ge=-(2**63), lt=2**63, description="default: its end")
    show: Literal["tracks", "bins", "slices"] = Field(
        "tracks",
        description="tracks: how long each stream and thread is busy, the busiest first; bins: the same in `bins`"
        " equal parts of the window; slices: each slice, longest first (needs the SQL engine)",
    )
    bins: int = Field(10, ge=1, le=100, description="number of bins")
    offset: Offset = 0

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.step is not None and (self.start_ns is not None or self.end_ns is not None):
            raise ValueError("give `step`, or `start_ns` and `end_ns`, not both")
        return self


async def run(api: Api, arguments: WindowArguments) -> str:
    """Return what runs in a window."""
    trace = await api.trace(arguments.trace)
    path = f"traces/{trace['id']}/analysis/overview"
    start, end = arguments.start_ns, arguments.end_ns
    if arguments.step is not None:
        start, end = await _bounds_of_step(api, path, arguments.step)
    tracks = _BINNED_MAX if arguments.show == "bins" else arguments.offset + arguments.max_rows
    overview = await api.get(
        path, table=["window", "tracks", "bins"], from_ns=start, to_ns=end, wait=WAIT_S,
        bins=arguments.bins if arguments.show == "bins" else 1, tracks=max(1, min(tracks, _TRACKS_MAX)),
    )  # fmt: skip
    windows, tracks_shown, bins = (_rows(overview["tables"][name]) for name in ("window", "tracks", "bins"))
    start, end = min(window["start_ns"] for window in windows), max(window["end_ns"] for window in windows)
    count = sum(window["tracks"] for window in windows)
    reply = Reply(arguments)
    reply.line(f"window: start_ns {start}, end_ns {end}, span_ns {end - start}; {count} streams and threads")
    if arguments.show == "tracks":
        reply.table(_tracks(tracks_shown, count, arguments.offset))
    elif arguments.show == "bins":
        reply.line(f"bin i of {arguments.bins} starts at start_ns + floor(i * span_ns / {arguments.bins})")
        if len(tracks_shown) < count:
            reply.line(f"only the {len(tracks_shown)} busiest of {count} streams and threads")
        reply.table(_bins(tracks_shown, bins, arguments.offset))
    else:
        reply.table(await _slices(api, trace["id"], (start, end), arguments))
    return reply.text()


async def _bounds_of_step(api: Api, path: str, number: int) -> tuple[int, int]:
    """Return the first start and the last end of a step; raises `ApiError` if the trace has no such step."""
    answer = await api.get(path, table="steps", bins=1, tracks=1, steps_max=_STEPS_MAX, wait=WAIT_S)
    steps = _rows(answer["tables"]["steps"])
    spans = [(step["start_ns"], step["end_ns"]) for step in steps if step["step"] == number]
    if not spans:
        known = sorted({step["step"] for step in steps})
        listed = known if len(known) <= _LISTED_MAX else [*known[:3], "…", *known[-3:]]
        detail = f"The trace has no step {number}."
        raise ApiError("unknown_choice", "The trace has nothing of that name", detail, 422, {"known_steps": listed})
    return min(start for start, _ in spans), max(end for _, end in spans)


def _tracks(tracks: list[Json], count: int, offset: int) -> Table:
    """Return a page of the busiest tracks; `tracks` has at least those of the page and before it."""
    busiest = sorted(tracks, key=lambda track: -track["busy_ns"])
    return Table("tracks", _TRACKS, [[track[name] for name in _TRACKS] for track in busiest[offset:]], count, offset)


def _bins(tracks: list[Json], bins: list[Json], offset: int) -> Table:
    names = {(track["rank"], track["track"]): _name(track) for track in tracks}
    rows = [row | {"track": names[row["rank"], row["track"]]} for row in bins]
    return Table("bins", _BINS, [[row[name] for name in _BINS] for row in rows[offset:]], len(rows), offset)


def _name(track: Json) -> str:
    if track["kind"] == "stream":
        return f"stream {track['device']}/{track['stream']}"
    return f"thread {track['thread']} of process {track['process']}"


async def _slices(api: Api, trace_id: str, window: tuple[int, int], arguments: WindowArguments) -> Table:
    limit, offset = arguments.max_rows, arguments.offset
    sql = _SLICES.format(start=window[0], end=window[1], limit=limit + 1, offset=offset)
    table = await api.query(trace_id, {"sql": sql, "limit": limit + 1})
    rows = table["rows"]
    total = None if len(rows) > limit else offset + len(rows)
    return Table("slices", [column["name"] for column in table["columns"]], rows, total, offset)


def _rows(table: Json) -> list[Json]:
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


TOOL = Tool(
    "window",
    "Show what runs in a window",
    "Shows what runs in a time window or a step of one trace: how long each stream and thread is busy, in equal bins,"
    " or slice by slice. Use it for the places that `describe` and `analyse` name.",
    WindowArguments,
    run,
)

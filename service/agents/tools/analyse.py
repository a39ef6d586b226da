"""The tool `analyse`: any analysis of a trace or a run."""

from typing import Any
from urllib.parse import quote

from pydantic import Field
from tracedock.errors import ApiError

from service.agents.api import Api, Json
from service.agents.reply import Budgets, Reply, Table, titled
from service.agents.tools.tool import ChosenCycle, Object, Offset, Selected, Subject, Tool, as_text
from service.analysis.names import COMPARISONS

WAIT_S = 30
"""Seconds to wait for traces that are still being read."""
_TWO_SIDES = "It takes two sides: use the tool `compare`."
_SKIPPED_MAX = 8
_OWN = {
    *("format", "table", "limit", "offset", "traces", "cycle", "base", "base_selection", "base_cycle"),
    *("selection", "wait"),
}
"""Parameters of the API that are no parameters of an analysis."""


class AnswerArguments(Budgets):
    """Arguments that choose the part of an answer to show."""

    table: str | None = Field(None, description="the table to show; default: the main one")
    columns: list[str] | None = Field(None, description="only these columns, by the names in the reply")
    offset: Offset = 0


class AnalyseArguments(AnswerArguments):
    """Arguments of `analyse`."""

    target: Subject
    analysis: str | None = Field(
        None, pattern=r"^\w+$", description="name; without it: the list of all, with a line on each"
    )
    selection: Selected = None
    cycle: ChosenCycle = None
    parameters: Object = Field({}, description='of the analysis, like {"top": 3}; explain=true lists them')
    explain: bool = Field(
        False, description="instead of running it: its definition, parameters and tables; with table, the columns"
    )


_FIELDS = AnalyseArguments.model_fields


async def run(api: Api, arguments: AnalyseArguments) -> str:
    """Return a table of an analysis, or the list of analyses, or the definition of one."""
    target = await api.target(arguments.target)
    path = f"{target.path}/analysis"
    if arguments.analysis in COMPARISONS and not arguments.explain:
        raise ApiError("bad_analysis", "The analysis request is invalid", _TWO_SIDES, 422)
    if arguments.analysis is None or arguments.explain:
        known = (await api.get(path, selection=as_text(arguments.selection)))["analyses"]
        return _listed(arguments, known) if arguments.analysis is None else _explained(arguments, known)
    if other := sorted(arguments.parameters.keys() & _OWN):
        detail = f"{', '.join(other)}: not a parameter of an analysis; use the arguments of the tool."
        raise ApiError("unknown_parameter", "There is no such parameter", detail, 422, {"known": [*_FIELDS]})
    parameters = {name: _parameter(value) for name, value in arguments.parameters.items()}
    shown = {
        "selection": as_text(arguments.selection), "cycle": arguments.cycle, "limit": arguments.max_rows,
        "offset": arguments.offset,
    }  # fmt: skip
    answer = await api.get(f"{path}/{quote(arguments.analysis, safe='')}", wait=WAIT_S, **parameters, **shown)
    return answered(answer, arguments)


def _parameter(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def answered(answer: Json, arguments: AnswerArguments) -> str:
    """Return the chosen table of an answer of the API, and the names of the other tables.

    Raises:
        ApiError: there is no such table or column.
    """
    tables = answer["tables"]
    name = arguments.table or next(iter(tables))
    if name not in tables:
        raise _unknown("table", name, tables)
    columns = [titled(column) for column in tables[name]["columns"]]
    chosen = arguments.columns or columns
    for column in chosen:
        if column not in columns:
            raise _unknown("column", column, columns)
    places = [columns.index(column) for column in chosen]
    rows = [[row[place] for place in places] for row in tables[name]["rows"]]
    reply = Reply(arguments)
    for note in answer["notes"]:
        reply.line(f"note: {note}")
    for skipped in answer["skipped"][:_SKIPPED_MAX]:
        rank = "" if skipped["rank"] is None else f"rank {skipped['rank']}, "
        reply.line(f"skipped: {rank}{skipped['name']}: {skipped['reason']}")
    if len(answer["skipped"]) > _SKIPPED_MAX:
        reply.line(f"skipped: {len(answer['skipped']) - _SKIPPED_MAX} more traces")
    reply.table(Table(name, chosen, rows, tables[name]["total"], arguments.offset))
    if others := [f"{other} ({table['total']} rows)" for other, table in tables.items() if other != name]:
        reply.line(f"other tables: {', '.join(others)}")
    return reply.text()


def _listed(arguments: AnalyseArguments, analyses: list[Json]) -> str:
    names = ("analysis", "answers", "not_applicable_because")
    rows = [[analysis["name"], analysis["answers"], _reason_against(analysis)] for analysis in analyses]
    reply = Reply(arguments.model_copy(update={"max_rows": max(arguments.max_rows, len(rows))}))
    reply.table(Table("analyses", names, rows[arguments.offset :], len(rows), arguments.offset))
    return reply.text()


def _reason_against(analysis: Json) -> str | None:
    reason: str | None = analysis["reason"]
    return _TWO_SIDES if analysis["name"] in COMPARISONS else reason


def _explained(arguments: AnalyseArguments, analyses: list[Json]) -> str:
    known = {analysis["name"]: analysis for analysis in analyses}
    if arguments.analysis not in known:
        raise ApiError(
            "unknown_analysis", "There is no such analysis", f"There is no analysis {arguments.analysis!r}.", 404,
            {"known": [*known]},
        )  # fmt: skip
    analysis = known[arguments.analysis]
    reply = Reply(arguments)
    reply.line(f"{arguments.analysis}: {analysis['answers']} {analysis['definition']}")
    if analysis["reason"]:
        reply.line(f"not applicable: {analysis['reason']}")
    for name, field in analysis["parameters"].items():
        reply.line(f"parameter {name}: {field.get('description', '')} (default: {field.get('default')})")
    tables = analysis["tables"]
    if arguments.table is None:
        for name, columns in tables.items():
            reply.line(f"table {name}: {', '.join(map(titled, columns))}")
        return reply.text()
    if arguments.table not in tables:
        raise _unknown("table", arguments.table, tables)
    rows = [[titled(column), column["description"]] for column in tables[arguments.table]]
    whole = arguments.model_copy(update={"max_rows": len(rows), "max_chars": 20_000})
    reply = Reply(whole)
    reply.table(Table(f"columns of {arguments.table}", ("column", "meaning"), rows, len(rows), rest="raise max_bytes"))
    return reply.text()


def _unknown(what: str, name: str, known: object) -> ApiError:
    detail = f"The answer has no {what} {name!r}."
    return ApiError(f"unknown_{what}", f"There is no such {what}", detail, 422, {"known": [*known]})  # type: ignore[misc] # a collection of names


TOOL = Tool(
    "analyse",
    "Run an analysis",
    "Runs a built-in analysis on a trace or on all ranks of a run, exact to the nanosecond, and returns one table; the"
    " reply names the others. For example: collectives (late ranks: table `ranks`), temporal_breakdown, steps,"
    " kernel_breakdown, operators, idle_breakdown, critical_path, memory. Prefer it to SQL. Rows that follow:"
    " offset. Fewer bytes: columns, or parameters.",
    AnalyseArguments,
    run,
)

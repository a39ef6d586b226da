"""Questions to traces: SQL, analyses and reports."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import quote

import httpx

from tracedock.asynchronous.resource import FOLLOW_S, AsyncResource
from tracedock.asynchronous.runtime import in_thread, sleep
from tracedock.errors import (
    ApiError,
)
from tracedock.messages import (
    ANSWER_S,
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    SYNC_S,
    Json,
    Ref,
    ReportForm,
    SelectionLike,
    Target,
    Watcher,
    chosen,
    compact,
    document,
    given,
    id_of,
    kind_of,
    patience,
    query_body,
    target_path,
    trace_path,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tracedock.selection import Criteria
    from tracedock.tables import Analysis, Table

_JSON, _ARROW = "application/json", "application/vnd.apache.arrow.stream"


class AsyncQuestions(AsyncResource):
    """The methods of SQL, analyses and reports."""

    async def sql(  # noqa: PLR0913 - one parameter for each option
        self,
        trace: Ref,
        sql: str,
        *,
        args: str = "all",
        source: Optional[str] = None,
        limit: Optional[int] = None,
        timeout_s: Optional[float] = DEFAULT_TIMEOUT_S,
        arrow: Optional[bool] = None,
        on_loading: Optional[Watcher] = None,
        selection: SelectionLike = None,
        **criteria: Unpack[Criteria],
    ) -> Table:
        """Return the result of a query as a `Table`.

        Args:
            trace: the trace.
            sql: the query.
            args: event arguments in the engine: `all`, `essential` or `none`; with fewer it loads faster.
            source: what the engine loads: the events in `columns`, or the `original` of a Perfetto trace as it is, with
                its packets of other kinds; None for the first of the trace's `sources`.
            limit: maximum number of rows; None for all. `Table.truncated` tells if there are more.
            timeout_s: seconds of the query, without the load of the engine; None for the server's limit.
            arrow: whether the server sends Arrow, which needs pyarrow, rather than JSON; None if pyarrow is there.
                The table is the same.
            on_loading: receives the session about once a second while the engine loads.
            selection: the events to query, on an engine of their own; by default all.
            criteria: fields of the selection, as keyword arguments.

        Raises:
            SqlError: the query is refused.
            DeadlineError: it takes longer than `timeout_s`.
            TooLargeError: the result exceeds the limit of the server.
        """
        query = query_body(sql, selection, criteria, args, source, limit, timeout_s)
        is_arrow = _has_pyarrow() if arrow is None else arrow
        async with self._run_query(trace, query, _ARROW if is_arrow else _JSON, on_loading) as response:
            await response.aread()
            return await in_thread(_table, response)

    async def query(  # noqa: PLR0913 - one parameter for each option
        self,
        trace: Ref,
        sql: str,
        *,
        selection: SelectionLike = None,
        args: str = "all",
        source: Optional[str] = None,
        limit: Optional[int] = DEFAULT_LIMIT,
        timeout_s: Optional[float] = DEFAULT_TIMEOUT_S,
        on_loading: Optional[Watcher] = None,
        **criteria: Unpack[Criteria],
    ) -> Json:
        """Return the result of a query as JSON of the API, `{"columns", "rows", "truncated", "elapsed_ms"}`.

        The arguments are those of `sql`.
        """
        query = query_body(sql, selection, criteria, args, source, limit, timeout_s)
        async with self._run_query(trace, query, _JSON, on_loading) as response:
            await response.aread()
            return document(response)

    async def export(  # noqa: PLR0913 - one parameter for each option
        self,
        trace: Ref,
        sql: str,
        accept: str,
        *,
        selection: SelectionLike = None,
        args: str = "all",
        source: Optional[str] = None,
        limit: Optional[int] = None,
        timeout_s: Optional[float] = DEFAULT_TIMEOUT_S,
        on_loading: Optional[Watcher] = None,
        **criteria: Unpack[Criteria],
    ) -> AsyncIterator[bytes]:
        """Yield the result of a query as bytes of the media type `accept`; otherwise like `sql`.

        The types are `application/json`, `application/x-ndjson`, `text/csv` and `application/vnd.apache.arrow.stream`.
        """
        query = query_body(sql, selection, criteria, args, source, limit, timeout_s)
        async with self._run_query(trace, query, accept, on_loading) as response:
            async for block in response.aiter_bytes():
                yield block

    async def analyses(self, target: Ref, *, of: Optional[Target] = None) -> list[Json]:
        """Return the built-in analyses, with `tables`, `parameters`, and whether each `applies` to the target."""
        path = f"{target_path(target, kind_of(target, of))}/analysis"
        analyses: list[Json] = (await self._connection.json("GET", path))["analyses"]
        return analyses

    async def analyze(  # noqa: PLR0913 - one parameter for each option
        self,
        target: Ref,
        name: str,
        *,
        of: Optional[Target] = None,
        traces: Sequence[Ref] = (),
        base: Sequence[Ref] = (),
        base_selection: SelectionLike = None,
        cycle: Optional[int] = None,
        base_cycle: Optional[int] = None,
        parameters: Optional[Mapping[str, Any]] = None,
        tables: Sequence[str] = (),
        wait: float = 0,
        selection: SelectionLike = None,
        **criteria: Unpack[Criteria],
    ) -> Analysis:
        """Return the result of a built-in analysis.

        Args:
            target: the trace or the group.
            name: name of the analysis.
            of: kind of the target; by default that of the object, or `trace` for an id.
            traces: the other ranks.
            base: traces or groups to compare with.
            base_selection: the events of the base; by default as `selection`.
            cycle: number of the cycle to analyse; by default all cycles, each separately.
            base_cycle: number of the base's cycle; by default `cycle`, unless the base has only one.
            parameters: parameters of the analysis, by name.
            tables: names of the tables to return; by default all.
            wait: seconds to wait for traces that are not ready.
            selection: the events to analyse; by default all.
            criteria: fields of the selection, as keyword arguments.

        Raises:
            NotApplicableError: the trace does not have the data that the analysis needs.
            NotFoundError: there is no such analysis (``unknown_analysis``).
            SelectionError: the trace has nothing of that selection.
        """
        response = await self._connection.answer(
            "GET",
            f"{target_path(target, kind_of(target, of))}/analysis/{quote(name, safe='')}",
            params=_analysis_query(
                traces, base, base_selection, wait, parameters, chosen(selection, criteria), "json", [*tables] or None
            )
            | given({"cycle": cycle, "base_cycle": base_cycle}),
            timeout=patience(wait=wait, read=SYNC_S),
        )
        return await in_thread(_analysis, response)

    async def analysis(  # noqa: PLR0913 - one parameter for each option
        self,
        target: Ref,
        name: Optional[str] = None,
        *,
        of: Target = "trace",
        traces: Sequence[Ref] = (),
        base: Sequence[Ref] = (),
        base_selection: SelectionLike = None,
        cycle: Optional[int] = None,
        base_cycle: Optional[int] = None,
        wait: float = 0,
        parameters: Optional[Mapping[str, Any]] = None,
        selection: SelectionLike = None,
        form: str = "json",
        table: Optional[str] = None,
        on_tables: Callable[[list[str]], object] = lambda _: None,
        **criteria: Unpack[Criteria],
    ) -> bytes:
        """Return the result of a built-in analysis as bytes; without a name, the list of analyses.

        Args:
            target: the trace or the group.
            name: name of the analysis; None for the list.
            of: kind of the target.
            traces: the other ranks.
            base: traces or groups to compare with.
            base_selection: the events of the base; by default as `selection`.
            cycle: number of the cycle to analyse; by default all cycles, each separately.
            base_cycle: number of the base's cycle; by default `cycle`, unless the base has only one.
            wait: seconds to wait for traces that are not ready.
            parameters: parameters of the analysis, by name.
            selection: the events to analyse; by default all.
            form: `json`, or `csv` or `arrow`, which have one table.
            table: name of the only table; by default all or, in `csv` or `arrow`, the first.
            on_tables: receives the names of all tables, for `csv` and `arrow`.
            criteria: the events to analyse, as keyword arguments.
        """
        part = chosen(selection, criteria)
        query = _analysis_query(traces, base, base_selection, wait, parameters, part, form, table)
        query |= given({"cycle": cycle, "base_cycle": base_cycle})
        response = await self._connection.answer(
            "GET",
            f"{target_path(target, of)}/analysis" + (f"/{quote(name, safe='')}" if name else ""),
            params=query if name else {},
            timeout=patience(wait=wait, read=SYNC_S),
        )
        on_tables([each.strip() for each in response.headers.get("tracedock-tables", "").split(",")])
        return response.content

    async def report(
        self,
        target: Ref,
        *,
        of: Optional[Target] = None,
        form: ReportForm = "html",
        selection: SelectionLike = None,
        cycle: Optional[int] = None,
        wait: float = 0,
        **criteria: Unpack[Criteria],
    ) -> str:
        """Return the report on a trace or a group.

        Args:
            target: the trace or the group.
            of: kind of the target; by default that of the object, or `trace` for an id.
            form: `html`, one file that needs no network, or `markdown`.
            selection: the events to report on; by default all.
            cycle: number of the cycle of the group; by default the first.
            wait: seconds to wait for traces that are not ready.
            criteria: the events to report on, as keyword arguments.
        """
        response = await self._connection.answer(
            "GET",
            f"{target_path(target, kind_of(target, of))}/report",
            params=given(
                {"format": form, "selection": compact(selection, criteria), "cycle": cycle, "wait": wait or None}
            ),
            timeout=patience(wait=wait, read=SYNC_S),
        )
        return response.text

    @asynccontextmanager
    async def _run_query(
        self, trace: Ref, query: Json, accept: str, on_loading: Optional[Watcher]
    ) -> AsyncIterator[httpx.Response]:
        """Repeat a query while the status is 202, because the engine loads; then yield the response, still unread."""
        timeout_s = query["timeout_s"]
        read_s = None if timeout_s is None else timeout_s + FOLLOW_S + ANSWER_S
        while True:
            started = time.monotonic()
            async with self._connection.stream(
                "POST",
                f"{trace_path(trace)}/query",
                params={"wait": FOLLOW_S},
                json=query,
                headers={"Accept": accept},
                timeout=patience(read=read_s),
                repeatable=True,
            ) as response:
                if response.status_code != 202:
                    yield response
                    return
                await response.aread()
                session = document(response)
            if session["state"] == "failed":
                raise ApiError.of_problem(session["error"] or {}, response.status_code)
            if on_loading:
                on_loading(session)
            # The time that the request took counts towards its Retry-After.
            await sleep(max(0.0, _retry_after(response) - (time.monotonic() - started)))


def _analysis_query(  # noqa: PLR0913, PLR0917 - the options of `AsyncClient.analysis`
    traces: Sequence[Ref],
    base: Sequence[Ref],
    base_selection: SelectionLike,
    wait: float,
    parameters: Optional[Mapping[str, Any]],
    selection: SelectionLike,
    form: str,
    table: Any,
) -> Json:
    """Return the query parameters of an analysis."""
    options = {
        "selection": compact(selection),
        "format": form,
        "table": table,
        "wait": wait or None,
        "base": list(map(id_of, base)) or None,
        "base_selection": compact(base_selection),
        "traces": list(map(id_of, traces)),
    }
    return {**(parameters or {}), **given(options)}


def _analysis(response: httpx.Response) -> Analysis:
    """Return the result of an analysis."""
    from tracedock.tables import Analysis  # noqa: PLC0415 - as below

    return Analysis.of_json(document(response))


def _table(response: httpx.Response) -> Table:
    """Return the table of a response, in the form that its type names."""
    from tracedock.tables import Table  # noqa: PLC0415 - most programs ask for no table

    if response.headers.get("content-type", "").startswith(_ARROW):
        return Table.of_arrow(response.content)
    return Table.of_json(document(response))


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d+", value) else 1.0


@cache
def _has_pyarrow() -> bool:
    return find_spec("pyarrow") is not None

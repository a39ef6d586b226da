"""Many clients share one engine, even while engines are killed."""

import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from service.engine.trace_processor import wire
from service.http.routes.perfetto import TRY_AGAIN
from service.store.tokens import Scope, Tokens
from tests.http.conftest import ENDLESS_ROWS
from tests.server import Server
from tests.waiting import until

StartServer = Callable[..., Server]

CLIENTS = 8  # of each kind: tabs and scripts
SLICES = 487  # in the trace `step_trace`
SHORT_QUERY = "SELECT {number} AS number, count(*) AS slices FROM slice"
LONG_QUERY = (
    "WITH RECURSIVE c(x) AS (SELECT {number} UNION ALL SELECT x + 1 FROM c LIMIT 20000)"
    f" SELECT min(x) AS number, {SLICES} AS slices FROM c"
)
ANSWER_TIMEOUT_S = 30


class Answer(NamedTuple):
    """The outcome of one query.

    Attributes:
        seconds: time until the answer.
        wrong: description of a wrong answer; None if the answer is right or asks for a retry.
        retry: whether the server asks the client to retry.
    """

    seconds: float
    wrong: str | None = None
    retry: bool = False


def numbered_query(number: int) -> str:
    """Return SQL whose result contains the number; every tenth query takes longer."""
    return (LONG_QUERY if number % 10 == 0 else SHORT_QUERY).format(number=number)


class Tab:
    """A tab of the UI, which reconnects when the server closes the connection for a retry."""

    def __init__(self, server: Server, trace: str) -> None:
        self._url = f"{server.url.replace('http', 'ws')}/perfetto/{trace}/rpc/websocket"
        self._socket: ClientConnection | None = None
        self._connection = ExitStack()

    def ask(self, number: int) -> Answer:
        started = time.monotonic()
        self._socket = self._socket or self._connection.enter_context(connect(self._url))
        query = wire.QueryArgs(sql_query=numbered_query(number))
        try:
            self._socket.send(wire.frame(wire.request(wire.QUERY_STREAMING, query_args=query)))
            (payload,) = wire.Deframer().feed(self._socket.recv(ANSWER_TIMEOUT_S, decode=False))
        except ConnectionClosed as closed:
            self.close()
            may_retry = closed.rcvd is not None and closed.rcvd.code == TRY_AGAIN
            return Answer(time.monotonic() - started, None if may_retry else repr(closed), retry=True)
        result = wire.Rpc.FromString(payload).query_result
        cells = [cell for batch in result.batch for cell in batch.varint_cells]
        wrong = None if cells == [number, SLICES] else f"{number} got {cells} {result.error}"
        return Answer(time.monotonic() - started, wrong)

    def close(self) -> None:
        self._connection.close()
        self._socket = None


class Script:
    """A script that sends SQL over HTTP."""

    def __init__(self, server: Server, trace: str) -> None:
        self._api = httpx.Client(base_url=f"{server.url}/api/v1", timeout=ANSWER_TIMEOUT_S, trust_env=False)
        self._path = f"/traces/{trace}/query"

    def ask(self, number: int) -> Answer:
        started = time.monotonic()
        answer = self._api.post(self._path, json={"sql": numbered_query(number)})
        seconds = time.monotonic() - started
        if answer.status_code in (502, 503) and answer.headers.get("retry-after") == "1":
            return Answer(seconds, retry=True)
        is_right = answer.status_code == 200 and answer.json()["rows"] == [[number, SLICES]]
        return Answer(seconds, None if is_right else f"{number} got {answer.text[:300]}")

    def close(self) -> None:
        self._api.close()


def ask_until(stop: threading.Event, client: Tab | Script, first_number: int, answers: list[Answer]) -> None:
    """Send queries with successive numbers until `stop` is set, and append their answers; then close the client."""
    for number in count(first_number):
        if stop.is_set():
            break
        answers.append(client.ask(number))
    client.close()


def answers_during(
    action: Callable[[list[Answer], list[Answer]], object], server: Server, trace: str
) -> tuple[list[Answer], list[Answer]]:
    """Send queries from tabs and scripts while an action runs; return the answers to the tabs and to the scripts.

    The action receives both lists of answers, which grow while it runs. No two clients use the same numbers.
    """
    tab_answers, script_answers = list[Answer](), list[Answer]()
    clients: list[tuple[Tab | Script, list[Answer]]] = [(Tab(server, trace), tab_answers) for _ in range(CLIENTS)]
    clients += [(Script(server, trace), script_answers) for _ in range(CLIENTS)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        futures = [
            pool.submit(ask_until, stop, client, 1 + index * 10**7, answers)
            for index, (client, answers) in enumerate(clients)
        ]
        try:
            action(tab_answers, script_answers)
        finally:
            stop.set()
    for future in futures:
        future.result()
    return tab_answers, script_answers


def any_retry(answers: list[Answer]) -> bool:
    """Return whether any answer asked its client to retry; the list may grow meanwhile."""
    return any(answer.retry for answer in [*answers])


def session_state(server: Server, trace: str) -> str:
    return str(server.api.get(f"/traces/{trace}/session").json()["state"])


def p95_ms(answers: list[Answer]) -> float:
    return round(1000 * statistics.quantiles([answer.seconds for answer in answers], n=20)[-1], 1)


def with_ready_engine(server: Server, step_trace: Path) -> tuple[Server, str]:
    """Upload a trace, wait until its engine answers, and return the server and the trace's id."""
    trace = str(server.upload(step_trace)["id"])
    assert server.rows(trace, "SELECT 1") == [[1]]
    return server, trace


@pytest.fixture
def shared(start_server: StartServer, step_trace: Path) -> tuple[Server, str]:
    """A server, and the id of a trace whose engine is ready."""
    return with_ready_engine(start_server(), step_trace)


@pytest.mark.parametrize("seconds", [5, pytest.param(120, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_tabs_and_scripts_get_their_own_answers(
    shared: tuple[Server, str], seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tabs, scripts = answers_during(lambda *_: time.sleep(seconds), *shared)
    assert [answer for answer in tabs + scripts if answer.wrong or answer.retry] == []
    assert min(len(tabs), len(scripts)) > seconds * CLIENTS
    with capsys.disabled():
        print(  # noqa: T201 - reports the measured rates
            f"\n{CLIENTS} tabs and {CLIENTS} scripts for {seconds} s: {len(tabs)} and {len(scripts)} answers,"
            f" p95 {p95_ms(tabs)} and {p95_ms(scripts)} ms"
        )


@pytest.mark.parametrize("seconds", [5, pytest.param(120, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_answers_are_right_or_ask_for_a_retry_while_engines_are_killed(
    start_server: StartServer, step_trace: Path, seconds: float
) -> None:
    server, trace = with_ready_engine(start_server(engine_deaths=1000), step_trace)

    def kill_engines(tabs: list[Answer], scripts: list[Answer]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end or not any_retry(tabs) or not any_retry(scripts):
            until(lambda: session_state(server, trace) == "ready")  # a kill during the load would fail the session
            server.engine(trace).kill()
            time.sleep(2)

    tabs, scripts = answers_during(kill_engines, server, trace)
    assert [answer.wrong for answer in tabs + scripts if answer.wrong] == []
    assert any_retry(tabs)
    assert any_retry(scripts)
    assert not tabs[-1].retry
    assert server.rows(trace, "SELECT count(*) FROM slice") == [[SLICES]]
    assert session_state(server, trace) == "ready"


def test_request_beyond_the_queue_limit_is_refused(start_server: StartServer, step_trace: Path) -> None:
    server = start_server(engine_queue=1)
    trace = server.upload(step_trace)["id"]
    endless_query = {"sql": ENDLESS_ROWS, "limit": None}
    with (
        server.api.stream(
            "POST", f"/traces/{trace}/query", json=endless_query, headers={"Accept": "text/csv"}
        ) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        rows = running.iter_lines()
        assert next(rows) == "x"
        script = Script(server, trace)
        waiting = pool.submit(script.ask, 7)
        until(lambda: server.api.get(f"/traces/{trace}/session").json()["queries"] == 2)
        refused = server.query(trace, "SELECT 1")
        assert (refused.status_code, refused.json()["code"]) == (503, "engine_busy")
        assert refused.headers["retry-after"] == "1"
        running.close()
        answer = waiting.result()
        assert (answer.wrong, answer.retry) == (None, False)
        script.close()


def test_a_trace_whose_engine_is_killed_from_outside_stays_available(shared: tuple[Server, str]) -> None:
    server, trace = shared
    for _ in range(4):
        assert server.rows(trace, "SELECT 1") == [[1]]
        server.engine(trace).kill()
        server.query(trace, "SELECT 1")
    until(lambda: server.query(trace, "SELECT 1").status_code == 200)
    assert server.api.get(f"/traces/{trace}/session").json()["engine"]["restarts"] == 4


# -- statements that kill engines ----------------------------------------------------------------------------------


class Asker(NamedTuple):
    """A client with a token of its own."""

    server: Server
    trace: str
    token: str

    def ask(self, sql: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.server.api.post(f"/traces/{self.trace}/query", json={"sql": sql}, headers=headers)

    def ask_in_tab(self, sql: str) -> str:
        """Run SQL in a tab of the UI, and return its error, or an empty string if it succeeds."""
        url = f"{self.server.url.replace('http', 'ws')}/perfetto/{self.trace}/rpc/websocket"
        query = wire.QueryArgs(sql_query=sql)
        with connect(url, additional_headers={"Authorization": f"Bearer {self.token}"}) as tab:
            tab.send(wire.frame(wire.request(wire.QUERY_STREAMING, query_args=query)))
            try:
                (payload,) = wire.Deframer().feed(tab.recv(ANSWER_TIMEOUT_S, decode=False))
            except ConnectionClosed as closed:
                return str(closed)
        return str(wire.Rpc.FromString(payload).query_result.error)


@pytest.fixture
def askers(start_server: StartServer, step_trace: Path) -> tuple[Asker, Asker]:
    """An attacker and a neighbour, with a token each, on the same trace."""
    server = start_server(token="w" * 20)
    server.api.headers["Authorization"] = f"Bearer {'w' * 20}"
    with closing(Tokens(server.data / "tokens.sqlite")) as tokens:
        reader_token = tokens.add("reader", Scope.READ)
    _, trace = with_ready_engine(server, step_trace)
    return Asker(server, trace, reader_token), Asker(server, trace, "w" * 20)


def error_code(answer: httpx.Response) -> str:
    """Return the error code of an answer, or an empty string if the query succeeded."""
    return "" if answer.status_code == 200 else str(answer.json()["code"])


def answers_again(asker: Asker) -> bool:
    return asker.ask("SELECT count(*) FROM slice").status_code == 200


def test_statement_that_kills_engines_is_refused_and_its_trace_stays_available(askers: tuple[Asker, Asker]) -> None:
    attacker, neighbour = askers
    for number in range(3):
        assert error_code(attacker.ask(f"SELECT randomblob({300_000_000 + number})")) == "engine_failed"
        assert error_code(attacker.ask(f"SELECT randomblob({300_000_000 + number})")) == "sql_kills_engine"
        until(lambda: answers_again(neighbour))

    refused = neighbour.ask("select  RANDOMBLOB(300000009) -- again")  # the same statement with another literal

    assert (refused.status_code, error_code(refused)) == (422, "sql_kills_engine")
    assert 0 < int(refused.headers["retry-after"]) <= 600
    assert "died of this statement" in attacker.ask_in_tab("SELECT randomblob(3)")
    assert attacker.ask("SELECT count(*) FROM slice").json()["rows"] == [[SLICES]]


def test_client_that_kills_many_engines_is_paused_and_others_are_not(askers: tuple[Asker, Asker]) -> None:
    attacker, neighbour = askers
    killers = [f"SELECT randomblob(300000000) AS {'x' * number}" for number in range(1, 7)]
    for number, sql in enumerate(killers):
        if number % 2:
            assert attacker.ask_in_tab(sql) != ""
        else:
            assert error_code(attacker.ask(sql)) == "engine_failed"
        until(lambda: answers_again(neighbour))

    refused = attacker.ask("SELECT 1")

    assert (refused.status_code, error_code(refused)) == (429, "engines_killed")
    assert 0 < int(refused.headers["retry-after"]) <= 600
    assert "engines died of your requests" in attacker.ask_in_tab("SELECT 1")
    assert neighbour.ask("SELECT count(*) FROM slice").json()["rows"] == [[SLICES]]


def test_simultaneous_copies_of_a_statement_kill_only_one_engine(askers: tuple[Asker, Asker]) -> None:
    attacker, neighbour = askers
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: attacker.ask("SELECT randomblob(300000000)"), range(20)))
    assert {error_code(answer) for answer in answers} <= {"engine_failed", "sql_kills_engine"}
    until(lambda: answers_again(neighbour))
    assert neighbour.server.api.get(f"/traces/{neighbour.trace}/session").json()["engine"]["restarts"] == 1


@pytest.mark.parametrize("trace_count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_engines_of_successive_traces_stay_within_the_memory_budget(
    start_server: StartServer, tmp_path: Path, trace_count: int
) -> None:
    budget = 3 * (40 << 20)  # enough for three engines: a small trace is expected to take 32 MiB
    server = start_server(engine_memory_bytes=budget, max_engines=20)
    for number in range(trace_count):
        events = [{"ph": "X", "name": f"trace {number}", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"traceEvents": events}))
        trace = server.upload(path)["id"]
        assert server.rows(trace, "SELECT name FROM slice") == [[f"trace {number}"]]
        engines = [engine for engine in server.children("--stdiod") if "trace_processor" in engine.name()]
        resident_bytes = 0
        for engine in engines:
            with suppress(psutil.NoSuchProcess):
                resident_bytes += engine.memory_info().rss
        assert 0 < resident_bytes <= budget

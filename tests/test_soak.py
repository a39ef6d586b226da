"""Mixed load with hostile clients, for ten minutes and for twenty seconds: no failures, and bounded memory.

The long run also bounds the latencies of other clients.
"""

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from service.engine.trace_processor import wire
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.system

SOAK_S = 600
MEMORY_MAX = 1 << 30
"""Limit of the server process's memory in bytes."""
OTHERS_MEDIAN_S = 0.05
BUSY = {502, 503, 504, 507}
"""Expected statuses from 500 on: a dead engine, no capacity, no time or no space."""
HOSTILE_SELECTIONS = (
    {"names": ["*a*a*a*a*a*aQ"]},
    {"names": ["*" * 999 + "a"]},
    {"names": ["re:(a|aa)+$"]},
    {"steps": list(range(2_000))},
    {"window": {"start_ns": 1, "end_ns": 0}},
)
HOSTILE_SQL = (
    "\u00a0attach ':memory:' as m",
    "drop view slice",
    "select randomblob(300000000)",
    "with recursive c(x) as (select 1 union all select x + 1 from c) select x from c",
    "select group_concat(name) from slice, slice",
)


class Soak:
    """Clients that send requests until they are stopped, and the results of their requests.

    Args:
        server: the server under test.
        path: the trace that the clients upload.
        trace: the id of a trace that is never deleted.
    """

    def __init__(self, server: Server, path: Path, trace: str) -> None:
        self.server, self.path, self.trace = server, path, trace
        self.stopped = Event()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.times: list[float] = []
        self.memory = 0
        self.errors: list[str] = []

    def run(self, seconds: float) -> None:
        """Run all clients for a number of seconds."""
        clients = [
            self.uploads,
            self.analyses,
            self.queries,
            self.tabs,
            self.cuts,
            self.hostile,
            self.listings,
            self.watch,
        ]
        threads = [Thread(target=self._repeat, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        self.stopped.wait(seconds)
        self.stopped.set()
        for thread in threads:
            thread.join()

    def _repeat(self, client: Callable[[httpx.Client, random.Random], None]) -> None:
        chance = random.Random(client.__name__)
        with httpx.Client(base_url=f"{self.server.url}/api/v1", timeout=120, trust_env=False) as api:
            api.event_hooks["response"].append(lambda answer: self._note(client.__name__, answer))
            while not self.stopped.is_set():
                try:
                    client(api, chance)
                except Exception as error:  # noqa: BLE001 - reported at the end, with its client
                    self.errors.append(f"{client.__name__}: {error!r}")
                    return

    def _note(self, client: str, answer: httpx.Response) -> None:
        self.statuses[client, answer.status_code] += 1

    # -- clients ------------------------------------------------------------------------------------------------------

    def uploads(self, api: httpx.Client, chance: random.Random) -> None:
        """Upload a trace, wait for it, and delete it."""
        body = self.path.read_bytes()
        answer = api.put(f"/traces/soak-{chance.randrange(3)}.json", params={"wait": PATIENCE_S}, content=body)
        if answer.is_success:
            api.delete(f"/traces/{answer.json()['id']}")

    def analyses(self, api: httpx.Client, chance: random.Random) -> None:
        """Run an analysis."""
        name = chance.choice(["operators", "steps", "critical_path", "kernel_breakdown", "temporal_breakdown"])
        api.get(f"/traces/{self.trace}/analysis/{name}")

    def queries(self, api: httpx.Client, chance: random.Random) -> None:
        """Run a SQL query."""
        sql = chance.choice(["select count(*) from slice", "select * from torch_kernel limit 100", "select nonsense"])
        api.post(f"/traces/{self.trace}/query", json={"sql": sql})

    def tabs(self, _: httpx.Client, chance: random.Random) -> None:
        """Open a tab, run a query, and close the tab."""
        url = f"{self.server.url.replace('http', 'ws')}/perfetto/{self.trace}/rpc/websocket"
        with suppress(ConnectionClosed, InvalidStatus, TimeoutError), connect(url, max_size=None) as tab:
            arguments = wire.QueryArgs(sql_query="select id, ts, dur from slice")
            tab.send(wire.frame(wire.request(wire.QUERY_STREAMING, query_args=arguments)))
            if chance.random() < 0.8:
                tab.recv(timeout=60)

    def cuts(self, api: httpx.Client, chance: random.Random) -> None:
        """Split a trace, and delete the children."""
        by = chance.choice(["step", "stream"])
        job = api.post(f"/traces/{self.trace}/split", params={"wait": PATIENCE_S}, json={"by": by}).json()
        for trace_id in (job.get("result") or {}).get("traces", []):
            api.delete(f"/traces/{trace_id}")

    def hostile(self, api: httpx.Client, chance: random.Random) -> None:
        """Send hostile requests, and sometimes disconnect before the response."""
        api.timeout = httpx.Timeout(chance.choice([0.2, 30]))
        selection = chance.choice(HOSTILE_SELECTIONS)
        asks: list[Callable[[], object]] = [
            lambda: api.post(f"/traces/{self.trace}/query", json={"sql": chance.choice(HOSTILE_SQL), "timeout_s": 1}),
            lambda: api.post(f"/traces/{self.trace}/split", json={"selection": selection, "dry_run": True}),
            lambda: api.get(f"/traces/{self.trace}/analysis/steps", params={"selection": json.dumps(selection)}),
            lambda: api.get(f"/traces/{self.trace}/download", params={"selection": json.dumps(selection)}),
        ]
        with suppress(httpx.TimeoutException, httpx.TransportError):
            chance.choice(asks)()

    def listings(self, api: httpx.Client, _: random.Random) -> None:
        """List traces, as every page does, and note how long it takes."""
        start = time.monotonic()
        api.get("/traces")
        self.times.append(time.monotonic() - start)
        self.stopped.wait(0.1)

    def watch(self, _: httpx.Client, __: random.Random) -> None:
        """Note the server's memory."""
        self.memory = max(self.memory, psutil.Process(self.server.pid).memory_info().rss)
        self.stopped.wait(0.5)


def soak(server: Server, folder: Path, seconds: float) -> Soak:
    """Run all clients at once for some time."""
    path = write_trace(folder / "soak.json", sized(TraceShape(), 4 * 10**6))
    clients = Soak(server, path, str(server.upload(path)["id"]))
    clients.run(seconds)
    return clients


def assert_sound(server: Server, clients: Soak) -> None:
    """Assert that no request failed unexpectedly, that memory was bounded, and that no files are left over."""
    assert clients.errors == []
    broken = {key: count for key, count in clients.statuses.items() if key[1] >= 500 and key[1] not in BUSY}
    assert broken == {}, server.log_text()[-5000:]
    assert "Traceback" not in server.log_text()
    assert clients.memory < MEMORY_MAX
    assert server.rows(clients.trace, "select count(*) > 0 from slice") == [[1]]
    assert list((server.data / "making").iterdir()) == []
    assert [trace["id"] for trace in server.api.get("/traces").json()["traces"]] == [clients.trace]


def test_twenty_seconds_of_mixed_load_break_nothing(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(engine_deaths=1000)
    assert_sound(server, soak(server, tmp_path, 20))


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_ten_minutes_of_mixed_load_break_nothing(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(engine_deaths=1000)
    clients = soak(server, tmp_path, SOAK_S)
    assert_sound(server, clients)
    assert statistics.median(clients.times) < OTHERS_MEDIAN_S

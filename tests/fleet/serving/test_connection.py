"""A connection runs tasks, and says what is wrong with a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.fleet.serving.connection import ClusterConnection
from service.fleet.serving.server_task import ServerTask
from service.fleet.workers.request import WorkersRequest
from service.trace.errors import (
    ClusterUnavailable,
    DataFolderMissing,
    NotJson,
    OtherVersion,
    TracedockError,
    WorkerDied,
)
from tests.fleet.serving.conftest import LoopbackCluster
from tests.fleet.work import Fails, Kills, ReportsForever, Square
from tests.ports import free_port
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def using(
    cluster: LoopbackCluster,
    work: Callable[[ClusterConnection], Awaitable[None]],
    on_event: Callable[[Any], object] = lambda _: None,
) -> None:
    """Do work with a connection."""
    request = WorkersRequest("dask", scheduler=cluster.address, patience_s=PATIENCE_S)

    async def connected() -> None:
        connection = ClusterConnection(request, 1, on_event)
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(asyncio.wait_for(connected(), PATIENCE_S))


def test_results_and_errors_are_outcomes(cluster: LoopbackCluster, tmp_path: Any) -> None:
    cluster.add_worker()

    async def work(connection: ClusterConnection) -> None:
        assert await asyncio.gather(*(connection.run(Square(number)) for number in range(9))) == [
            number**2 for number in range(9)
        ]
        assert isinstance(await connection.run(Fails(True)), NotJson)
        died = await connection.run(Kills(1000, str(tmp_path)))
        assert isinstance(died, WorkerDied)
        assert f"{len([*tmp_path.iterdir()])} workers died at it" in died.detail
        assert await connection.run(Square(3)) == 9

    using(cluster, work)


def test_progress_arrives_and_a_cancelled_task_ends(cluster: LoopbackCluster) -> None:
    cluster.add_worker()
    events = list[Any]()
    arrived = asyncio.Event()

    def on_event(event: Any) -> None:
        events.append(event)
        arrived.set()

    async def work(connection: ClusterConnection) -> None:
        topic = await connection.topic()
        running = asyncio.ensure_future(connection.run(ReportsForever(topic)))
        await arrived.wait()
        running.cancel()
        assert await connection.run(Square(4)) == 16, "the only worker is free"

    using(cluster, work, on_event)
    assert events[0]["id"] == 7
    assert events[0]["progress"].keys() == {"bytes", "events", "events_total", "bytes_total"}


def test_worker_without_the_data_folder_is_an_error(cluster: LoopbackCluster) -> None:
    cluster.add_worker()

    async def work(connection: ClusterConnection) -> None:
        error = await connection.run(ServerTask("IngestTask", b"{}", "/nowhere", "topic", 0))
        assert isinstance(error, DataFolderMissing)
        assert "/nowhere" not in error.detail

    using(cluster, work)


def test_worker_of_another_version_is_refused(cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_worker()
    monkeypatch.setattr("service.fleet.serving.connection.code_version", lambda: "Tracedock 0")

    async def work(connection: ClusterConnection) -> None:
        with pytest.raises(OtherVersion, match="Tracedock 0"):
            await connection.run(Square(1))

    using(cluster, work)


def test_scheduler_that_is_not_there_is_an_error() -> None:
    async def work() -> None:
        request = WorkersRequest("dask", scheduler=f"tcp://127.0.0.1:{free_port()}", patience_s=1)
        connection = ClusterConnection(request, 1, lambda _: None)
        with pytest.raises(ClusterUnavailable, match="can't be reached"):
            await connection.run(Square(1))

    asyncio.run(work())


def test_cluster_without_workers_is_an_error_in_the_end(cluster: LoopbackCluster) -> None:
    async def work() -> None:
        connection = ClusterConnection(
            WorkersRequest("dask", scheduler=cluster.address, patience_s=0.5), 1, lambda _: None
        )
        try:
            with pytest.raises(TracedockError, match="no worker"):
                await connection.run(Square(1))
        finally:
            await connection.close()

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))

"""The connection to a Dask cluster of a process that sends tasks at any time."""

import asyncio
import logging
import pickle
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Client, KilledWorker

from service.fleet.serving.server_task import TOPIC
from service.fleet.workers.absence import Absence
from service.fleet.workers.dask_workers import LOST, task_error
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.scheduler import address_of, require_version, security_of, unreachable
from service.fleet.workers.task import Task, code_version, run_on_worker
from service.trace.errors import ClusterLost, ClusterUnavailable, OtherVersion

CHECK_S = 2.0
"""Seconds between two questions for the workers."""

log = logging.getLogger(__name__)


class ClusterConnection:
    """A connection to a cluster, which is made when it is needed, and anew when the scheduler was lost.

    Args:
        request: names the cluster.
        processors: number of processors that a worker process may use.
        on_event: called with each message that tasks send to the topic of this connection.
    """

    def __init__(self, request: WorkersRequest, processors: int, on_event: Callable[[Any], object]) -> None:
        self._request = request
        self._processors = processors
        self._on_event = on_event
        self._connecting: asyncio.Task[Client] | None = None
        self._client: Client | None = None
        self._watching: asyncio.Task[None] | None = None
        self._without_workers = asyncio.Event()

    async def topic(self) -> str:
        """Return the topic for messages of tasks, once there is a connection; raises what `run` raises."""
        return TOPIC.format(client=(await self._connected()).id)

    async def worker_count(self, patience_s: float) -> int:
        """Return the number of workers that are there now.

        Args:
            patience_s: seconds to wait for a connection.

        Raises:
            ClusterUnavailable: there is no scheduler.
            ClusterLost: the scheduler was lost.
            OtherVersion: the scheduler has other code.
        """
        try:
            async with asyncio.timeout(patience_s):
                client = await self._connected()
        except TimeoutError as error:
            raise ClusterUnavailable(f"The scheduler can't be reached within {patience_s:g} s.") from error
        try:
            return len(await client.nthreads())
        except LOST as error:
            raise ClusterLost("The scheduler of the cluster was lost.") from error

    async def run(self, task: Task, *, priority: int = 0) -> Any:
        """Run a task on a worker, and return its result or the `TracedockError` that it failed with.

        Cancelling the call cancels the task.

        Args:
            task: the task.
            priority: priority over other tasks of the cluster.

        Raises:
            ClusterUnavailable: there is no scheduler or no worker.
            ClusterLost: the scheduler was lost, and the task with it.
            OtherVersion: the scheduler or the worker has other code.
        """
        client = await self._connected()
        future = client.submit(
            run_on_worker, pickle.dumps(task), wanted=code_version(), processors=self._processors,
            key=f"{type(task).__name__}-{uuid.uuid4().hex}", pure=False, retries=0, priority=priority,
        )  # fmt: skip
        result = asyncio.ensure_future(future.result())
        no_workers = asyncio.ensure_future(self._without_workers.wait())
        try:
            await asyncio.wait({result, no_workers}, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClusterUnavailable(f"The cluster has had no worker for {self._request.patience_s:g} s.")
            outcome = result.result()
        except LOST as error:
            raise ClusterLost("The scheduler of the cluster was lost.") from error
        except (KilledWorker, ModuleNotFoundError) as error:
            outcome = task_error(error)
        finally:
            for waiting in (result, no_workers):
                waiting.cancel()
            with suppress(*LOST):
                await client.cancel([future])
        if isinstance(outcome, OtherVersion):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Close the connection; the cluster drops its tasks."""
        if self._connecting:
            self._connecting.cancel()
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._watching:
            self._watching.cancel()
        if self._client:
            with suppress(*LOST):
                await self._client.close(timeout=1)
        self._client = None

    async def _connected(self) -> Client:
        """Return a client; callers share an attempt to connect, which goes on when one of them gives up."""
        if self._client is not None and self._client.status == "running":
            return self._client
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._reconnect())
            self._connecting.add_done_callback(_retrieve)  # all callers may have given up by then
        return await asyncio.shield(self._connecting)

    async def _reconnect(self) -> Client:
        if self._client:
            log.warning("the scheduler of the cluster was lost: connecting again")
        await self._disconnect()
        self._client = await self._connect()
        self._without_workers.clear()
        self._watching = asyncio.create_task(self._watch_workers(self._client))
        return self._client

    async def _connect(self) -> Client:
        address = address_of(self._request)
        try:
            client = await Client(
                address, security=security_of(self._request), timeout=self._request.patience_s, asynchronous=True,
                set_as_default=False,
            )  # fmt: skip
        except (OSError, TimeoutError, RuntimeError) as error:
            raise unreachable(self._request, address, error) from error
        try:
            require_version(await client.get_versions())
        except OtherVersion:
            await client.close()
            raise
        client.subscribe_topic(TOPIC.format(client=client.id), lambda event: self._on_event(event[1]))
        return client

    async def _watch_workers(self, client: Client) -> None:
        """Wake the calls once there has been no worker for long."""
        absence = Absence(2 * CHECK_S)
        while client.status == "running":
            workers = 0
            with suppress(*LOST):
                workers = len(await client.nthreads())
            if absence.check(workers) <= self._request.patience_s:
                self._without_workers.clear()
            else:
                self._without_workers.set()
            await asyncio.sleep(CHECK_S)


def _retrieve(task: asyncio.Task[Client]) -> None:
    if not task.cancelled():
        task.exception()

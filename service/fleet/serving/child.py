"""The child that sends the server's tasks to a Dask cluster, any number at a time.

For each `Call`, the child sends `Progressed` from time to time, and then the answer. A `Drop` cancels a call.
"""

import asyncio
import threading
import traceback
from typing import Any

from service.fleet.serving.cluster_of_server import ClusterOfServer
from service.fleet.serving.connection import ClusterConnection
from service.fleet.serving.group_answers import PRIORITY, answer_on_cluster
from service.fleet.serving.server_task import ServerTask
from service.jobs.children.channel import ServerChannel, call_of
from service.jobs.children.encoding import decode
from service.jobs.children.messages import Call, Crashed, Done, Drop, Failed, Message, Progressed
from service.jobs.children.tasks.questions import AnswerTask, PrepareTask
from service.streaming.source import Progress
from service.trace.errors import TracedockError

_SHORT = {PrepareTask.__name__}
"""Tasks that take less than a second, and go before jobs that wait."""


class ClusterCalls:
    """Takes calls and sends their answers.

    Args:
        channel: the channel to the server.
        cluster: the cluster.
    """

    def __init__(self, channel: ServerChannel, cluster: ClusterOfServer) -> None:
        self._channel = channel
        self._folder = str(cluster.folder)
        self._connection = ClusterConnection(cluster.request(), cluster.processors, self._progressed)
        self._running: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer calls until the server closes the channel."""
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()

        def read() -> None:
            while frame := self._channel.receive():
                loop.call_soon_threadsafe(self._take, *frame)
            loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=read, daemon=True).start()
        await closed.wait()
        await self._connection.close()

    def _take(self, message: Message, body: bytes) -> None:
        if isinstance(message, Drop):
            if dropped := self._running.get(message.id):
                dropped.cancel()
        elif isinstance(message, Call):
            self._running[message.id] = asyncio.create_task(self._answer(message, body))

    async def _answer(self, call: Call, content: bytes) -> None:
        try:
            answer = await self._outcome(call, content)
        except TracedockError as error:
            self._channel.send(Failed(error.as_document(), id=call.id))
        except Exception as bug:  # noqa: BLE001 - the client learns of the crash, and the log of its cause
            self._channel.send(Crashed(repr(bug), traceback.format_exc(), id=call.id))
        else:
            self._channel.send(Done(call.id), answer)
        finally:
            del self._running[call.id]

    async def _outcome(self, call: Call, content: bytes) -> bytes:
        """Return the result of a call; raises the `TracedockError` that it failed with."""
        if call.task == AnswerTask.__name__:
            return await answer_on_cluster(call_of(call, content).task, self._connection, self._folder)
        topic = await self._connection.topic()
        task = ServerTask(call.task, content, self._folder, topic, call.id)
        outcome = await self._connection.run(task, priority=PRIORITY if call.task in _SHORT else 0)
        if isinstance(outcome, TracedockError):
            raise outcome
        return bytes(outcome)

    def _progressed(self, event: dict[str, Any]) -> None:
        if event["id"] in self._running:
            self._channel.send(Progressed(Progress(**event["progress"]), event["id"]))


def main(channel: ServerChannel, cluster: str) -> int:
    """Answer calls until the server closes the connection, and return the exit status.

    Args:
        channel: the channel to the server.
        cluster: JSON of a `ClusterOfServer`.
    """
    asyncio.run(ClusterCalls(channel, decode(ClusterOfServer, cluster.encode())).run())
    return 0

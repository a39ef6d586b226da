"""The child that writes a document for a client or an engine, so that the server's memory and event loop stay free."""

import service.cutting.cut  # noqa: F401 - loaded before the task arrives
from service.jobs.children.channel import ServerChannel
from service.jobs.children.encoding import encode
from service.jobs.children.messages import Call, Done, Output
from service.jobs.children.tasks.documents import ExportTask, OriginalTask, PerfettoTask, RenderTask
from service.store.database import limit_spill
from service.trace.errors import ExportFailed, TracedockError


def main(channel: ServerChannel) -> int:
    """Write one document, and return the exit status."""
    received = channel.receive_call()
    if received is None:
        return 0
    channel.listen()
    return channel.run(lambda: _write(channel, received.call, received.task), fault=TracedockError)


def _write(channel: ServerChannel, call: Call, task: ExportTask | PerfettoTask | RenderTask | OriginalTask) -> None:
    limit_spill(call.spill_max)
    pieces = task.run()
    try:
        while True:
            channel.send(Output(), next(pieces), flush=False)
    except StopIteration as end:
        channel.send(Done(), encode(end.value))
    except MemoryError as error:
        raise ExportFailed("The document takes more memory than there is.") from error

"""The child that reads a trace into columns.

The server sends `Grown` as more of the file is received, and `Complete` once all of it is safe on disk. Until then the
child waits for more bytes. Its memory is bounded, so that no file can take all of the machine's memory.
"""

import resource
from contextlib import suppress

from service.jobs.children.channel import ServerChannel
from service.jobs.children.encoding import encode
from service.jobs.children.messages import Complete, Done, Grown, Message
from service.jobs.children.priority import lower_priority
from service.jobs.children.tasks.ingest import IngestTask
from service.streaming.source import GrowingFile
from service.trace.errors import IngestError, NotATrace

MEMORY_MAX = 4 << 30
"""Maximum number of allocated bytes, used or not.

For any trace, DuckDB and the compiler allocate a third of this, but use little of it. The address space is unlimited:
each thread reserves much more than it ever uses.
"""


def main(channel: ServerChannel) -> int:
    """Run one `IngestTask`, and return the exit status."""
    _bound_memory()
    lower_priority()
    received = channel.receive_call()
    if received is None:
        return 0
    task: IngestTask = received.task
    return channel.run(lambda: _run(channel, task), fault=IngestError)


def _run(channel: ServerChannel, task: IngestTask) -> None:
    try:
        summary = task.run(channel.send_progress, lambda file: channel.listen(lambda message: _follow(file, message)))
    except MemoryError as error:
        detail = f"Reading the file takes more than {MEMORY_MAX >> 20} MiB of memory, as no trace does."
        raise NotATrace(detail) from error
    channel.send(Done(), encode(summary))


def _follow(file: GrowingFile, message: Message) -> None:
    """Pass a report of the server about the file on to the file's reader."""
    match message:
        case Grown(to_bytes):
            file.grow(to_bytes)
        case Complete():
            file.finish()


def _bound_memory() -> None:
    with suppress(ValueError, OSError):  # a lower limit exists already, or the system has no such limit
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))

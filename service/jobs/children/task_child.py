"""The child that runs one task, such as a split, the plan of a split, a merge or an overlay, and sends its result."""

from typing import Any

from service.jobs.children.channel import ServerChannel
from service.jobs.children.encoding import encode
from service.jobs.children.messages import Done
from service.jobs.children.tasks.base import Task
from service.trace.errors import SelectionError


def main(channel: ServerChannel) -> int:
    """Run one task, and return the exit status."""
    received = channel.receive_call()
    if received is None:
        return 0
    channel.listen()
    task: Task[Any] = received.task
    return channel.run(lambda: channel.send(Done(), encode(task.run(channel.send_progress))), fault=SelectionError)

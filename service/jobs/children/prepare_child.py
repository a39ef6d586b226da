"""The child that computes the answers that pages show, before anybody asks for them."""

from service.jobs.children import task_child
from service.jobs.children.channel import ServerChannel
from service.jobs.children.priority import lower_priority


def main(channel: ServerChannel) -> int:
    """Run one `PrepareTask`, and return the exit status."""
    lower_priority()
    return task_child.main(channel)

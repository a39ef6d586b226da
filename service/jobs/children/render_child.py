"""The child that writes the document that an engine loads. Its result is a `RenderReport` on the document."""

from service.jobs.children import export_child
from service.jobs.children.channel import ServerChannel
from service.rendering.document import prepare


def main(channel: ServerChannel) -> int:
    """Write one document, and return the exit status."""
    prepare()
    return export_child.main(channel)

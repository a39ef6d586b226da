"""The kinds of child processes, each with the module that runs it."""

from enum import StrEnum

PACKAGE = "service.jobs.children"
"""The package of the modules that run children."""


class Kind(StrEnum):
    """The kind of a child process."""

    INGEST = "ingest"
    """Reads a trace into columns."""
    DERIVE = "derive"
    """Derives traces from traces: splits, plans of splits, merges and overlays."""
    EXPORT = "export"
    """Writes a document for a client."""
    RENDER = "render"
    """Writes a document for an engine."""
    ANALYSIS = "analysis"
    """Answers questions."""
    PREPARE = "prepare"
    """Computes and keeps the answers that pages show."""


ENTRIES = {
    Kind.INGEST: f"{PACKAGE}.ingest_child",
    Kind.DERIVE: f"{PACKAGE}.task_child",
    Kind.EXPORT: f"{PACKAGE}.export_child",
    Kind.RENDER: f"{PACKAGE}.export_child",
    Kind.ANALYSIS: f"{PACKAGE}.analysis_child",
    Kind.PREPARE: f"{PACKAGE}.prepare_child",
}
"""The module of each kind. Its ``main(channel, *arguments)`` runs the child and returns its exit status."""

FORK_SERVER_TITLE = "tracedock fork server"
"""The command line that process lists show for the fork server."""


def title_of(kind: Kind) -> str:
    """Return the command line that process lists show for a child."""
    return f"tracedock {kind}"

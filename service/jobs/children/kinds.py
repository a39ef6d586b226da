"""The kinds of child processes, each with the module that runs it."""

from enum import StrEnum

from service.analysis.names import NAMES

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
    CLUSTER = "cluster"
    """Sends tasks to a Dask cluster."""
    DATASETS = "datasets"
    """Watches datasets of many traces, and answers questions about them."""


ENTRIES = {
    Kind.INGEST: f"{PACKAGE}.ingest_child",
    Kind.DERIVE: f"{PACKAGE}.task_child",
    Kind.EXPORT: f"{PACKAGE}.export_child",
    Kind.RENDER: f"{PACKAGE}.export_child",
    Kind.ANALYSIS: f"{PACKAGE}.analysis_child",
    Kind.PREPARE: f"{PACKAGE}.prepare_child",
    Kind.CLUSTER: "service.fleet.serving.child",
    Kind.DATASETS: "service.fleet.serving.datasets_child",
}
"""The module of each kind. Its ``main(channel, *arguments)`` runs the child and returns its exit status."""

LATE = (
    *(f"service.analysis.{name}" for name in NAMES),
    *(
        f"service.analysis.facts.{name}"
        for name in ("covered", "path_edges", "slices", "snapshot_rows", "snapshot_step_choice")
    ),
)
"""Modules that a process loads when the first question needs them. With them come numba, DuckDB and Parquet."""

OPTIONAL = frozenset({Kind.CLUSTER, Kind.DATASETS})
"""The kinds that few servers need, so that the fork server does not load their code."""

FORK_SERVER_TITLE = "tracedock fork server"
"""The command line that process lists show for the fork server."""


def title_of(kind: Kind) -> str:
    """Return the command line that process lists show for a child."""
    return f"tracedock {kind}"

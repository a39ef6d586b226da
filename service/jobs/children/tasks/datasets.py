"""The tasks about datasets of many traces, and the answers that a child gives.

`service.fleet.serving.datasets_child` runs them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

DatasetStatus = Literal["reading", "unavailable", "ingesting", "stopped", "idle"]
"""State of a dataset.

`reading` until its records have been read for the first time, `unavailable` if that failed, `ingesting` while an ingest
runs, `stopped` if the last ingest ended early, otherwise `idle`.
"""

IngestStatus = Literal["running", "stopped", "done"]
"""State of an ingest. One is stopped if it said so, or if it has not written its plan for long."""


@dataclass(frozen=True)
class DatasetTask:
    """Describe a dataset.

    Attributes:
        url: its location.
        failures: maximum number of failures to list.
        after: key of the failure before the first one to list; empty for the first page.
    """

    url: str
    failures: int = 0
    after: str = ""


@dataclass(frozen=True)
class FleetQuestionTask:
    """Answer a question about a run of a dataset; see `service.fleet.questions.question.ask`.

    Attributes:
        url: location of the dataset.
        question: name of the question.
        run: name of the run.
        parameters: values of the parameters.
        form: format of the answer: ``json``, ``columns``, ``csv`` or ``arrow``.
        tables: the tables to return; empty for all or, as csv or arrow, for the first.
        limit: maximum number of rows of each table; None for all.
        offset: number of rows of each table to skip.
    """

    url: str
    question: str
    run: str
    parameters: dict[str, Any]
    form: str = "json"
    tables: list[str] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class RunReport:
    """A run of a dataset.

    Attributes:
        name: its name.
        done: number of its sources that are done.
        failed: number of its sources that have failed.
        ranks: number of its ranks.
        world_size: number of ranks of the job, if it is known.
        size_bytes: size of the sources that are done.
        events: number of their events.
        last_ns: when its last record was written, in ns since 1970.
    """

    name: str
    done: int
    failed: int
    ranks: int
    world_size: int | None
    size_bytes: int
    events: int
    last_ns: int


@dataclass(frozen=True)
class Failure:
    """A source that has failed.

    Attributes:
        key: the key of its record.
        run: name of its run.
        source: path or URL of the file.
        attempts: number of attempts so far.
        worker: host and process of the last attempt.
        failed_ns: its end, in ns since 1970.
        error: the error, as JSON values.
    """

    key: str
    run: str
    source: str
    attempts: int
    worker: str
    failed_ns: int
    error: dict[str, Any]


@dataclass(frozen=True)
class IngestReport:
    """An ingest of a dataset, as its plan has it.

    Attributes:
        key: name of the plan.
        status: its state.
        host: name of the host that runs it.
        process: its process id there.
        started_ns: its start, in ns since 1970.
        beat_ns: when it has last written its plan, by its own clock.
        sources: number of its sources.
        done: number of its sources that are done.
        failed: number of its sources that have failed.
        size_bytes: size of its sources.
        settled_bytes: size of its sources that are done or have failed.
        bytes_per_s: rate of reading; None if it is unknown.
        left_s: estimated seconds until its end; None if they are unknown.
        reason: why `left_s` is unknown; None if it is known.
    """

    key: str
    status: IngestStatus
    host: str
    process: int
    started_ns: int
    beat_ns: int
    sources: int
    done: int
    failed: int
    size_bytes: int
    settled_bytes: int
    bytes_per_s: float | None
    left_s: float | None
    reason: str | None


@dataclass(frozen=True)
class DatasetReport:
    """A dataset: its runs, its ingests and its failures.

    Attributes:
        status: its state.
        reason: why it is unavailable, or not complete; None if there is nothing to say.
        read_ns: when its records were read, in ns since 1970; None if they never were.
        unread: number of records that are not read yet.
        runs: its runs, in order of their names.
        ingests: its ingests, the last one to start first.
        failures: a page of its failures, in order of runs and sources.
        following: `after` of the next page; None if this is the last one.
    """

    status: DatasetStatus
    reason: str | None = None
    read_ns: int | None = None
    unread: int = 0
    runs: list[RunReport] = field(default_factory=list)
    ingests: list[IngestReport] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    following: str | None = None


DatasetCall = DatasetTask | FleetQuestionTask
"""Tasks of the child of datasets."""

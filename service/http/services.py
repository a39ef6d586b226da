"""The services that routes use, and the dependency that provides them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from service.engine.pool import EnginePool
from service.http.listener_state import ListenerState
from service.http.server.inbox import ByteBudget
from service.jobs.analyses import Analyses
from service.jobs.datasets import Datasets
from service.jobs.derivation_jobs import DerivationJobs
from service.jobs.direct_uploads import DirectUploads
from service.jobs.exports import Exports
from service.jobs.importer import Importer
from service.jobs.ingest_jobs import IngestJobs
from service.jobs.job_monitor import JobMonitor
from service.jobs.resumable_uploads import ResumableUploads
from service.jobs.split_planner import SplitPlanner
from service.jobs.trace_intake import TraceIntake
from service.operations.groups import GroupOperations
from service.operations.sessions import SessionOperations
from service.operations.traces import TraceOperations
from service.settings import Settings
from service.store.attachments import Attachments
from service.store.baselines import Baselines
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.groups import Groups
from service.store.idempotency import Idempotency
from service.store.jobs import Jobs
from service.store.library import Library
from service.store.originals import Originals
from service.store.room import Room


@dataclass(frozen=True)
class Services:
    """The services of the application, built by `service.composition`.

    Attributes:
        settings: the settings.
        engine: the path of the trace_processor program that engines run.
        ui: the folder of the Perfetto UI.
        folder: the data folder.
        room: the disk space of the data folder.
        catalog: the records of traces.
        originals: decides which originals are kept and served.
        attachments: the files beside traces and runs.
        groups: the records of groups.
        baselines: the names of the traces and groups that others are compared with.
        library: the list of runs and single traces.
        jobs: the records of jobs.
        idempotency: the records of idempotency keys.
        monitor: reports the progress of jobs, and waits for their end.
        ingests: the jobs that read traces.
        derivations: the jobs that make traces from other traces.
        split_planner: the dry runs of splits.
        imports: the jobs that import files from the server's disk.
        uploads: the resumable uploads.
        direct_uploads: the uploads into the bucket.
        intake: records traces whose files are complete.
        exports: the processes that write downloads.
        analyses: the process that runs analyses.
        datasets: the datasets of many traces, and the process that reads them.
        engine_pool: the engines.
        listener: the state of the localhost listener.
        unanswered: the budget of bytes for unanswered WebSocket messages, shared by all connections.
        trace_operations: operations on single traces.
        group_operations: operations on groups.
        session_operations: operations on engine sessions.
    """

    settings: Settings
    engine: Path
    ui: Path
    folder: Folder
    room: Room
    catalog: Catalog
    originals: Originals
    attachments: Attachments
    groups: Groups
    baselines: Baselines
    library: Library
    jobs: Jobs
    idempotency: Idempotency
    monitor: JobMonitor
    ingests: IngestJobs
    derivations: DerivationJobs
    split_planner: SplitPlanner
    imports: Importer
    uploads: ResumableUploads
    direct_uploads: DirectUploads
    intake: TraceIntake
    exports: Exports
    analyses: Analyses
    datasets: Datasets
    engine_pool: EnginePool
    listener: ListenerState
    unanswered: ByteBudget
    trace_operations: TraceOperations
    group_operations: GroupOperations
    session_operations: SessionOperations


def services_of(connection: HTTPConnection) -> Services:
    """Return the services of the app that received a request or a WebSocket."""
    services: Services = connection.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
"""The type of a route's parameter that receives the services."""

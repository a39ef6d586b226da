"""The composition of the service: builds each part from the settings, and passes it to the parts that use it."""

import contextlib
import logging
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from service.engine.pool import EnginePool
from service.engine.trace_processor import protections, provision
from service.engine.trace_processor.driver import TraceProcessorDriver
from service.fleet.serving.cluster_of_server import cluster_of_server
from service.http.authentication import Authenticator
from service.http.hosts import Hosts
from service.http.listener_state import ListenerState
from service.http.server.inbox import TOTAL_MAX_BYTES, ByteBudget
from service.http.services import Services
from service.jobs.analyses import Analyses
from service.jobs.children.encoding import encode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.cluster import Cluster
from service.jobs.datasets import Datasets, locations_of
from service.jobs.derivation_jobs import AT_ONCE, DerivationJobs
from service.jobs.derivations import ready_source
from service.jobs.direct_uploads import DirectBucket, DirectUploads
from service.jobs.exports import Exports, Renderings
from service.jobs.import_job import ImportContext
from service.jobs.importer import Importer
from service.jobs.ingest_jobs import IngestJobs
from service.jobs.job_monitor import JobMonitor
from service.jobs.page_preparation import PagePreparation
from service.jobs.question_child import QuestionChild
from service.jobs.resumable_uploads import ResumableUploads, UploadBounds
from service.jobs.retention import Retention
from service.jobs.room_guard import RoomGuard
from service.jobs.split_planner import SplitPlanner
from service.jobs.task_runner import ChildRunner, TaskRunner
from service.jobs.trace_intake import TraceIntake
from service.operations.groups import GroupOperations
from service.operations.sessions import SessionOperations
from service.operations.traces import TraceOperations
from service.settings import Settings
from service.store.attachments import Attachments
from service.store.audit import Audit
from service.store.baselines import Baselines
from service.store.catalog import Catalog
from service.store.direct_uploads import DirectUploadRecords
from service.store.folder import Folder
from service.store.groups import Groups
from service.store.idempotency import Idempotency
from service.store.imports import Imports
from service.store.jobs import Jobs
from service.store.library import Library
from service.store.originals import Originals
from service.store.room import Room
from service.store.roots import Roots
from service.store.tokens import Tokens
from service.streaming.scan import machine_code

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composition:
    """All parts of the service.

    Attributes:
        services: the parts that routes use.
        access: authenticates clients.
        hosts: the host names of the server, and the origins whose pages may use it.
        renderings: the processes that write the documents that engines load.
        fork_server: starts all worker processes.
        cluster: runs tasks on a cluster; None without one.
        retention: removes old traces.
        preparation: prepares the pages of traces.
        room_guard: ends jobs that fill the disk.
    """

    services: Services
    access: Authenticator
    hosts: Hosts
    renderings: Renderings
    fork_server: ForkServer
    cluster: Cluster | None
    retention: Retention
    preparation: PagePreparation
    room_guard: RoomGuard


def compose(settings: Settings, resources: contextlib.ExitStack) -> Composition:
    """Build all parts of the service.

    Args:
        settings: the settings.
        resources: closes the files that the parts hold open.

    Raises:
        TracedockError: a part can't be built, such as an engine that is not installed.
    """
    hosts = Hosts(settings)
    dataset_locations = locations_of(settings.datasets)
    folder = Folder(settings.data)
    access = Authenticator(settings, resources.enter_context(closing(Tokens(folder.tokens))))
    engine, ui = provision.provide(settings)
    log.warning(
        "guards of the engines: %s", protections.summary(settings)
    )  # a warning, because warnings are shown even if logging is not configured
    if machine_code.folder() is None:
        log.warning("%s", machine_code.NOT_KEPT)
    folder.open()
    resources.enter_context(closing(Audit(folder.audit, rotate=True)))
    catalog = Catalog(folder.catalog)
    folder.sweep(catalog.ids())
    originals = Originals(catalog, folder, keep_nsys=settings.keep_nsys_originals)
    originals.remove_leftovers()
    attachments = Attachments(catalog.connection, folder)
    attachments.sweep()
    room = Room(folder.root, quota=settings.quota_bytes, floor=settings.min_free_bytes)
    jobs = Jobs(catalog.connection, history=settings.job_history)
    groups = Groups(catalog.connection, on_removed=attachments.remove_orphans)
    monitor = JobMonitor(jobs)
    fork_server = ForkServer()
    children = ChildRunner(fork_server)
    cluster = _cluster(settings, folder, fork_server)
    runner: TaskRunner = cluster or children
    ingests = IngestJobs(
        catalog,
        monitor,
        folder,
        runner,
        originals,
        workers=settings.dask_jobs if cluster else settings.ingest_workers,
        attempts=settings.ingest_attempts,
    )
    derivations = DerivationJobs(
        catalog,
        monitor,
        folder,
        runner,
        at_once=settings.dask_jobs if cluster else AT_ONCE,
        attempts=settings.ingest_attempts,
        deadline_s=settings.job_timeout_s,
    )
    pool = EnginePool.of(
        settings, TraceProcessorDriver(settings), folder.incoming, room
    )  # large results go to the folder `incoming`, which is emptied at each start
    exports = Exports(fork_server, deadline_s=settings.analysis_timeout_s, room=room)
    renderings = Renderings(fork_server, room=room)
    analyses = Analyses(
        fork_server, folder.incoming, deadline_s=settings.analysis_timeout_s, room=room, cluster=cluster
    )
    dataset_child = QuestionChild(
        fork_server, Kind.DATASETS, folder.incoming, deadline_s=settings.analysis_timeout_s, room=room
    )
    preparation = PagePreparation(
        catalog, folder, runner, enabled=settings.prepare_pages, deadline_s=settings.analysis_timeout_s
    )
    listener = ListenerState()

    def on_removed(trace_id: str) -> None:
        listener.forget(trace_id)
        direct_uploads.wake()

    trace_operations = TraceOperations(
        catalog, folder, monitor, ingests, derivations, preparation, pool, attachments, on_removed=on_removed
    )
    retention = Retention(
        catalog, room, trace_operations.remove, derivations.sources, groups,
        days=settings.retain_days, size_max=settings.retain_bytes,
    )  # fmt: skip

    def on_read(trace_id: str) -> None:
        retention.wake()  # the new columns take space, too
        direct_uploads.wake()  # the original of this format may not be kept
        preparation.add(trace_id)

    ingests.on_read = on_read

    def on_arrival() -> None:
        retention.wake()
        direct_uploads.wake()

    intake = TraceIntake(catalog, folder, ingests, originals, on_arrival=on_arrival)
    direct_uploads = DirectUploads(
        DirectUploadRecords(catalog.connection), catalog, room, ingests, intake,
        DirectBucket(settings.bucket) if settings.bucket else None, bounds=_upload_bounds(settings),
    )  # fmt: skip
    services = Services(
        settings=settings,
        engine=engine,
        ui=ui,
        folder=folder,
        room=room,
        catalog=catalog,
        originals=originals,
        attachments=attachments,
        groups=groups,
        baselines=Baselines(catalog.connection),
        library=Library(catalog.connection),
        jobs=jobs,
        idempotency=Idempotency(catalog.connection),
        monitor=monitor,
        ingests=ingests,
        derivations=derivations,
        split_planner=SplitPlanner(
            children, partial(ready_source, catalog, folder), deadline_s=settings.analysis_timeout_s
        ),
        imports=_imports(settings, folder, room, catalog, monitor, intake),
        uploads=_uploads(settings, folder, room, catalog, ingests, intake),
        direct_uploads=direct_uploads,
        intake=intake,
        exports=exports,
        analyses=analyses,
        datasets=Datasets(dataset_locations, dataset_child),
        engine_pool=pool,
        listener=listener,
        unanswered=ByteBudget(TOTAL_MAX_BYTES),
        trace_operations=trace_operations,
        group_operations=GroupOperations(groups, catalog, folder, trace_operations),
        session_operations=SessionOperations(trace_operations, folder, pool, renderings),
    )
    return Composition(
        services=services,
        access=access,
        hosts=hosts,
        renderings=renderings,
        fork_server=fork_server,
        cluster=cluster,
        retention=retention,
        preparation=preparation,
        room_guard=RoomGuard(room, lambda: [*ingests.tasks, *derivations.tasks, *preparation.tasks]),
    )


def _cluster(settings: Settings, folder: Folder, fork_server: ForkServer) -> Cluster | None:
    """Return the cluster that the settings name, if they do."""
    if not settings.dask_scheduler:
        return None
    return Cluster(fork_server, encode(cluster_of_server(settings, folder.root)).decode())


def _imports(
    settings: Settings, folder: Folder, room: Room, catalog: Catalog, monitor: JobMonitor, intake: TraceIntake
) -> Importer:
    context = ImportContext(
        catalog,
        monitor,
        folder,
        room,
        intake,
        orders=Imports(catalog.connection),
        roots=Roots.of(settings.import_roots, excluding=folder.root, excluding_objects=settings.bucket),
        limit=settings.max_upload_bytes,
        linked=settings.import_hard_links,
    )
    return Importer(context, scan_every_s=settings.import_look_s)


def _uploads(
    settings: Settings, folder: Folder, room: Room, catalog: Catalog, ingests: IngestJobs, intake: TraceIntake
) -> ResumableUploads:
    return ResumableUploads(folder, room, catalog, ingests, intake, bounds=_upload_bounds(settings))


def _upload_bounds(settings: Settings) -> UploadBounds:
    return UploadBounds(
        settings.max_upload_bytes,
        settings.upload_expires_s,
        settings.max_uploads,
        settings.max_uploads_per_client,
    )

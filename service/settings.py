"""Settings of the service: one frozen object, which is built once and passed to the parts.

`docs/settings.md` lists all settings.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

GIB = 1 << 30


class Settings(BaseSettings):
    """Settings of the service, read from environment variables ``TRACEDOCK_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="TRACEDOCK_", env_ignore_empty=True, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8700, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    data: Path = Field(Path("data"), description="folder that holds the catalog and the traces")
    perfetto_port: int = Field(
        9001,
        ge=0,
        le=65535,
        description="port on 127.0.0.1 for ui.perfetto.dev and Perfetto's Python client; 0 = off",
    )
    token: SecretStr | None = Field(
        None,
        min_length=16,
        description="API token with full access, in addition to those of `tracedock token add`; commands send it, too",
    )
    allowed_hosts: str = Field("", description="further host names of the server, separated by commas")
    allowed_origins: str = Field(
        "",
        description="further origins, like `https://traces.example`, whose pages may send changes and, by CORS, read"
        " responses",
    )
    engine: Path | None = Field(None, description="trace_processor_shell to run instead of the pinned one")
    engine_sandbox: Literal["auto", "off", "required"] = Field(
        "auto",
        description="sandbox of engines: `auto` uses the guards that the machine offers, `off` uses none (for an engine"
        " that is a script), `required` refuses to start without all of them",
    )
    ui: Path | None = Field(None, description="folder of a built Perfetto UI to serve instead of the pinned one")
    ui_all_args_events: int = Field(
        2_000_000,
        ge=0,
        description="largest number of events that the Perfetto UI opens with all arguments; of more events, it first"
        " loads the essential ones",
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="maximum of concurrent connections; beyond it the connection that has been idle for longest is"
        " closed, and without an idle one a new connection gets 503",
    )
    max_connections_per_client: int = Field(
        250,
        ge=1,
        description="maximum of concurrent connections of one address (of one /64 with IPv6); this machine is exempt;"
        " raise it for a proxy on another machine",
    )
    head_timeout_s: float = Field(20.0, gt=0, description="timeout of the head of a request, and of idle connections")
    transfer_window_s: float = Field(
        60.0,
        gt=0,
        description="seconds after which a connection is closed whose request body stalls or whose response is not"
        " read",
    )
    min_bytes_per_s: float = Field(
        100.0,
        ge=0,
        description="rate below which, over `TRACEDOCK_TRANSFER_WINDOW_S`, a body or a response counts as stalled",
    )
    max_upload_bytes: int = Field(64 * GIB, gt=0, description="maximum size of an uploaded or imported file")
    max_attachment_bytes: int = Field(
        GIB, gt=0, description="maximum size of a file that is attached to a trace or a run"
    )
    max_uploads: int = Field(1000, ge=1, description="maximum of unfinished resumable uploads")
    max_uploads_per_client: int = Field(
        250, ge=1, description="maximum of unfinished resumable uploads of one token or, without tokens, of one address"
    )
    upload_expires_s: float = Field(
        7 * 24 * 3600.0,
        gt=0,
        description="seconds until an unfinished resumable upload is deleted, counted from its last byte",
    )
    bucket: str = Field(
        "",
        description="part of a bucket, `s3://BUCKET/PREFIX`, into which clients upload directly; empty disables that",
    )
    import_roots: str = Field(
        "",
        description="folders and URLs of buckets (`s3://BUCKET/PREFIX`, `gs://`, `az://`), separated by commas, from"
        " which files may be imported; empty disables imports",
    )
    import_hard_links: bool = Field(
        False,
        description="import files that have further hard links, one of which may lie outside of the import roots",
    )
    keep_nsys_originals: bool = Field(
        False,
        description="keep the original of an export of Nsight Systems once it is read, and serve it; it holds the whole"
        " environment of the profiled process, tokens too",
    )
    import_look_s: float = Field(
        2.0,
        gt=0,
        description="seconds between scans of an import for new files; a file is imported once two scans find it"
        " unchanged",
    )
    quota_bytes: int | None = Field(
        None, gt=0, description="maximum size of the data folder, unfinished uploads included"
    )
    min_free_bytes: int = Field(GIB, ge=0, description="free space to leave on the disk of the data folder")
    retain_days: float | None = Field(None, gt=0, description="days until unpinned traces are deleted")
    retain_bytes: int | None = Field(
        None, gt=0, description="size of the data folder beyond which the oldest unpinned traces are deleted"
    )
    ingest_workers: int = Field(
        1,
        ge=1,
        description="worker processes that read traces in parallel; as many more read uploads as they arrive, and one"
        " more reads a file of up to 32 MiB while these read larger ones. Each takes up to 1 GB and all"
        " processors, up to eight",
    )
    ingest_attempts: int = Field(
        3,
        ge=1,
        description="attempts to read, split or merge traces whose worker process dies, or whose bucket can't be"
        " reached, before the job fails",
    )
    dask_scheduler: str = Field(
        "",
        description="scheduler of a Dask cluster, as an address or as the path of its scheduler file: its workers read,"
        " split and merge traces, and answer for the ranks of runs; they must see the data folder at the same path",
    )
    dask_tls_ca: Path | None = Field(None, description="certificate of the authority of that cluster")
    dask_tls_cert: Path | None = Field(None, description="certificate of the server for that cluster")
    dask_tls_key: Path | None = Field(None, description="private key of that certificate")
    dask_jobs: int = Field(
        64, ge=1, description="maximum of ingests on that cluster at a time, and of splits and merges"
    )
    dask_processors: int = Field(1, ge=1, description="processors that each worker process of that cluster may use")
    dask_wait_s: float = Field(
        300.0, gt=0, description="seconds for which jobs wait for that cluster's scheduler or for a worker, then fail"
    )
    datasets: str = Field(
        "",
        description="datasets of `tracedock fleet` to show, separated by commas: paths, or s3://, gs:// or az://; each"
        " is named after the last part of its path",
    )
    job_history: int = Field(10_000, ge=0, description="finished jobs to keep listed; older ones are deleted")
    analysis_timeout_s: float = Field(
        300.0,
        gt=0,
        description="timeout of an analysis, of a dry run, and of the first byte of a download that is written on"
        " request",
    )
    job_timeout_s: float = Field(4 * 3600.0, gt=0, description="timeout of each attempt at a split, merge or overlay")
    query_timeout_s: float = Field(60.0, gt=0, description="default timeout of a query")
    query_limit: int = Field(100_000, ge=1, description="default maximum of rows in the result of a query")
    max_result_bytes: int = Field(4 * GIB, gt=0, description="maximum size of a query result, in the engine's encoding")
    results_bytes: int = Field(
        8 * GIB,
        gt=0,
        description="maximum disk space of all query results that clients have not read; beyond, 507 `no_room`",
    )
    max_engines: int = Field(
        4,
        ge=1,
        description="maximum of running engines; the one that has been idle for longest is stopped to start another",
    )
    engine_memory_bytes: int | None = Field(
        None, gt=0, description="maximum memory of all engines together; 60 % of the machine's when not set"
    )
    engine_deaths: int = Field(
        3,
        ge=1,
        description="engine crashes within ten minutes after which a trace, or statements that differ only in their"
        " literals, are blocked; twice as many block a client, and one crash blocks a statement of the same text",
    )
    engine_queue: int = Field(256, ge=1, description="maximum of requests that wait for one engine")
    engine_stall_s: float = Field(
        30.0, gt=0, description="processor time of a load without progress after which its engine is stopped"
    )
    ui_timeout_s: float = Field(300.0, gt=0, description="timeout of a request of a Perfetto UI or its Python client")
    engine_idle_s: float = Field(900.0, gt=0, description="seconds until an engine without clients is stopped")
    engine_load_timeout_s: float = Field(900.0, gt=0, description="timeout of the load of a trace into an engine")
    keep_ready: bool = Field(
        True,
        description="load the code of worker processes when the server starts, rather than at their first use; takes"
        " about 110 MB of memory and saves two seconds then",
    )
    prepare_pages: bool = Field(
        True,
        description="once a trace has been read, compute the answers that its page and that of its run show, with low"
        " priority, rather than at the first visit",
    )
    engine_stop_s: float = Field(2.0, gt=0, description="grace period of each step that stops an engine")
    shutdown_s: float = Field(10.0, gt=0, description="timeout of the server's own shutdown")

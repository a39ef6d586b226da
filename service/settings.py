"""Everything that can be set, in one frozen object: built once, passed in, documented in the README."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

GIB = 1 << 30


class Settings(BaseSettings):
    """The service's settings; each is also the environment variable ``TRACEDOCK_<NAME>``."""

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
        description="a token that may do everything, beside those of `tracedock token add`; the commands send it, too",
    )
    allowed_hosts: str = Field(
        "", description="further names, separated by commas, under which the server may be asked for"
    )
    allowed_origins: str = Field(
        "",
        description="further origins, like `https://traces.example`, whose pages may change things and, by CORS, read"
        " answers",
    )
    engine: Path | None = Field(None, description="another trace_processor_shell to run instead of the pinned one")
    engine_sandbox: Literal["auto", "off", "required"] = Field(
        "auto",
        description="shut engines in: with the guards that the machine offers, not at all (for an engine that is a"
        " script), or with all guards, or else don't start",
    )
    ui: Path | None = Field(None, description="folder of another built Perfetto UI instead of the pinned one")
    max_connections: int = Field(
        1000,
        ge=1,
        description="connections at once; beyond it the one that has been idle for longest gives way, and with none"
        " idle a new one gets 503",
    )
    max_connections_per_client: int = Field(
        250,
        ge=1,
        description="of these, connections of one address (of one /64 with IPv6) other than this machine's; raise it"
        " for a proxy on another machine",
    )
    head_timeout_s: float = Field(20.0, gt=0, description="how long the head of a request may take")
    transfer_window_s: float = Field(
        60.0, gt=0, description="how long a body may stall, and an answer go unread, before the connection is ended"
    )
    min_bytes_per_s: float = Field(
        100.0, ge=0, description="pace below which, over such a time, a body or an answer counts as stalled"
    )
    max_upload_bytes: int = Field(64 * GIB, gt=0, description="largest body an upload may have")
    max_uploads: int = Field(1000, ge=1, description="resumable uploads that may be under way at once")
    max_uploads_per_client: int = Field(
        250, ge=1, description="of these, uploads of one token or, where none is needed, of one address"
    )
    upload_expires_s: float = Field(
        7 * 24 * 3600.0, gt=0, description="how long a resumable upload is kept after its last byte"
    )
    import_roots: str = Field(
        "", description="folders, separated by commas, out of which files may be imported; without any, none are"
    )
    import_hard_links: bool = Field(
        False,
        description="import files that have further names (hard links), of which one may lie outside of these folders",
    )
    import_look_s: float = Field(
        2.0, gt=0, description="seconds between an import's looks for new files; one that two looks find alike is taken"
    )
    quota_bytes: int | None = Field(None, gt=0, description="bytes that the data folder may take, uploads included")
    min_free_bytes: int = Field(GIB, ge=0, description="free bytes that are left on the disk of the data folder")
    retain_days: float | None = Field(None, gt=0, description="days after which a trace goes that nobody pinned")
    retain_bytes: int | None = Field(
        None, gt=0, description="bytes that the data folder may take before the oldest traces go that nobody pinned"
    )
    ingest_workers: int = Field(
        1,
        ge=1,
        description="worker processes that read traces at the same time; as many more follow uploads, and one more"
        " reads a file of up to 32 MiB while these read larger ones. Each takes up to 1 GB and as many processors as"
        " there are, up to eight",
    )
    ingest_attempts: int = Field(3, ge=1, description="times a trace is read before a dying worker fails it")
    job_history: int = Field(10_000, ge=0, description="jobs that are over and stay listed; older ones are forgotten")
    analysis_timeout_s: float = Field(
        300.0,
        gt=0,
        description="deadline of an analysis, of a dry run, and of the first byte of a download that is written",
    )
    job_timeout_s: float = Field(4 * 3600.0, gt=0, description="deadline of each attempt at a split, merge or overlay")
    query_timeout_s: float = Field(60.0, gt=0, description="a query's deadline when it names none")
    query_limit: int = Field(100_000, ge=1, description="rows a query answers with when it names no limit")
    max_result_bytes: int = Field(4 * GIB, gt=0, description="largest query result, as the engine sends it")
    results_bytes: int = Field(
        8 * GIB,
        gt=0,
        description="bytes on disk of all query results that clients have not read; beyond, 507 `no_room`",
    )
    max_engines: int = Field(4, ge=1, description="engines alive at once; the longest idle one makes room")
    engine_memory_bytes: int | None = Field(
        None, gt=0, description="memory that all engines together may take; 60 % of the machine's when not set"
    )
    engine_deaths: int = Field(
        3,
        ge=1,
        description="times within ten minutes that engines may die of one trace's load, or of statements that differ in"
        " their literals only, before that is refused; twice as many of one client's statements",
    )
    engine_queue: int = Field(256, ge=1, description="requests that may wait for one engine")
    engine_stall_s: float = Field(
        30.0, gt=0, description="processor time that an engine may burn on a load without coming further"
    )
    ui_timeout_s: float = Field(300.0, gt=0, description="deadline of what a Perfetto UI or its Python client asks")
    engine_idle_s: float = Field(900.0, gt=0, description="an engine with no client is closed after so long")
    engine_load_timeout_s: float = Field(900.0, gt=0, description="an engine must have loaded its trace by then")
    keep_ready: bool = Field(
        True,
        description="keep processes ready that read traces, write downloads, feed engines and answer analyses, about"
        " 400 MB of memory; without them each of these begins a second later",
    )
    engine_stop_s: float = Field(2.0, gt=0, description="grace of each step when an engine is stopped")
    shutdown_s: float = Field(10.0, gt=0, description="deadline of the service's own shutdown")

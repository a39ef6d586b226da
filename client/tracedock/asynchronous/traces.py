"""Traces: uploads, downloads, and links that open them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Optional, Union
from urllib.parse import urlencode

from tracedock.asynchronous.direct import AsyncDirectUpload
from tracedock.asynchronous.download import AsyncDownload
from tracedock.asynchronous.groups import AsyncGroups
from tracedock.asynchronous.resource import FOLLOW_S, share_of
from tracedock.asynchronous.runtime import in_thread
from tracedock.asynchronous.upload import PATIENCE_S, OnRetry
from tracedock.errors import (
    AmbiguousTargetError,
    AmbiguousTraceError,
    ApiError,
    DigestMismatchError,
    NotFoundError,
    WaitTimeoutError,
)
from tracedock.messages import (
    SYNC_S,
    BytesReceived,
    BytesSent,
    Json,
    Ref,
    SelectionLike,
    Target,
    Watcher,
    chosen,
    compact,
    given,
    id_of,
    link_parameters,
    patience,
    trace_path,
)
from tracedock.sources import PIECE, opened

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tracedock.selection import Criteria


class AsyncTraces(AsyncGroups):
    """The methods of traces."""

    async def upload(  # noqa: PLR0913 - one parameter for each option
        self,
        source: Union[str, os.PathLike[str], BinaryIO],
        *,
        name: Optional[str] = None,
        group: Optional[str] = None,
        resume: bool = True,
        direct: bool = False,
        wait: bool = False,
        key: Optional[str] = None,
        patience_s: float = PATIENCE_S,
        on_bytes: Optional[BytesSent] = None,
        on_ingest: Optional[Watcher] = None,
        on_retry: Optional[OnRetry] = None,
    ) -> Json:
        """Upload a file or a binary stream, and return its trace.

        A broken upload is resumed, even after a restart of the server, until `patience_s` pass without progress. Up to
        1 MiB is sent in one request, which is repeated like others. Of a stream, at most 17 MiB are held in memory.

        Args:
            source: path of the file, or a stream of unknown length, such as a pipe.
            name: name of the trace; by default the name of the file. A stream needs one.
            group: name of the trace's group.
            resume: whether to send resumable chunks, rather than one request, which any proxy accepts.
            direct: whether to send the bytes into the server's bucket, past the server, in one request that is repeated
                as a whole; it needs a known size, and takes no `key`.
            wait: whether to wait until the trace is ready or failed; `wait` also raises the error of a failed one.
            key: an `Idempotency-Key`. For a day, a later upload with the same key, name and group goes on where this
                one was interrupted, and makes no second trace.
            patience_s: seconds without progress after which an upload fails.
            on_bytes: receives the number of sent bytes and the total, which is 0 if unknown.
            on_ingest: receives the trace about once a second while it is ingested, if `wait` is set.
            on_retry: receives the error of a chunk, and the seconds until the next attempt.

        Raises:
            DigestMismatchError: the server computed a SHA-256 that is not that of the sent bytes.
            OSError: the file can't be read, or was truncated during the upload.
            TypeError: the stream is not binary.
            ValueError: a stream has no name; or a direct upload has a key, or a stream of unknown size.
        """
        with opened(source) as content:
            label = name or content.name
            if not label:
                raise ValueError("a stream needs a `name`")
            if direct and key:
                raise ValueError("a direct upload takes no `key`")
            upload = AsyncDirectUpload(self._connection, content, label, group, key, on_bytes, on_retry, patience_s)
            if direct or resume or content.size is not None:
                await in_thread(content.extent, 0)  # a short stream then has a known size
            is_small = content.size is not None and content.size <= PIECE
            if direct:
                trace = await upload.send_direct()
            elif resume and not is_small:
                trace = await self.trace(await upload.send_chunks())
            else:
                trace = await upload.send_whole()
        if trace["sha256"] != upload.sha256:
            raise DigestMismatchError(trace, sent=upload.sha256)
        return await self.follow(trace, on_ingest) if wait else trace

    async def traces(
        self, *, state: Optional[str] = None, name: Optional[str] = None, parent: Optional[Ref] = None
    ) -> AsyncIterator[Json]:
        """Yield the matching traces, newest first.

        Args:
            state: state of the traces.
            name: part of their names.
            parent: the trace that they were cut from.
        """
        query = given({"state": state, "name": name, "parent": None if parent is None else id_of(parent)})
        async for trace in self._pages("traces", query):
            yield trace

    async def trace(self, trace: Ref, *, wait: float = 0) -> Json:
        """Return a trace; wait at most `wait` seconds until it is ready or failed."""
        return await self._held("GET", trace_path(trace), wait)

    async def follow(self, trace: Ref, on_ingest: Optional[Watcher] = None) -> Json:
        """Wait without a limit until the trace is ready or failed; `on_ingest` receives it about once a second."""
        while True:
            current = await self.trace(trace, wait=FOLLOW_S)
            if on_ingest:
                on_ingest(current)
            if current["state"] in ("ready", "failed"):
                return current

    async def wait(self, trace: Ref, *, timeout_s: Optional[float] = None, on_ingest: Optional[Watcher] = None) -> Json:
        """Wait until the trace is ready, and return it.

        Args:
            trace: the trace.
            timeout_s: seconds to wait; None for no limit.
            on_ingest: receives the trace about once a second.

        Raises:
            UnreadableTraceError: the file can't be read as a trace.
            WaitTimeoutError: the trace is not ready in time.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            current = await self.trace(trace, wait=share_of(ends_at))
            if on_ingest:
                on_ingest(current)
            if current["state"] == "ready":
                return current
            if current["state"] == "failed":
                raise ApiError.of_problem(current["error"] or {}, 200)
            if ends_at is not None and timeout_s is not None and time.monotonic() >= ends_at:
                raise WaitTimeoutError(current, timeout_s)

    async def find(self, text: str) -> Json:
        """Return the trace with an id, a unique start of an id, a unique name, or `latest`.

        Raises:
            NotFoundError: no trace matches (``unknown_trace``).
            AmbiguousTraceError: several traces match.
        """
        if re.fullmatch("[0-9a-f]{12}", text):
            try:
                return await self.trace(text)
            except ApiError as error:
                if error.code != "unknown_trace":
                    raise
        if text == "latest":
            page = await self._connection.json("GET", "traces", params={"limit": 1})
            matches = page["traces"]
        elif re.fullmatch("[0-9a-f]+", text):
            matches = [trace async for trace in self.traces() if trace["id"].startswith(text) or trace["name"] == text]
        else:
            matches = [trace async for trace in self.traces(name=text) if trace["name"] == text]
        if not matches:
            missing = "trace yet" if text == "latest" else f"trace {text!r}"
            raise NotFoundError("unknown_trace", "Unknown trace", f"There is no {missing} on {self.url}.", 404)
        if len(matches) > 1:
            raise AmbiguousTraceError(text, matches)
        return await self.trace(matches[0])

    async def target(self, text: str) -> tuple[Target, Json]:
        """Return the trace, as in `find`, or the group with an id or a name.

        Raises:
            NotFoundError: neither a trace nor a group matches (``unknown_trace``).
            AmbiguousTraceError: several traces match.
            AmbiguousTargetError: a trace and a group match.
        """
        group = None if text == "latest" else await self._group_of(text)
        try:
            trace = await self.find(text)
        except AmbiguousTraceError as error:
            if group:
                raise AmbiguousTargetError(text, error.traces, group) from error
            raise
        except ApiError as error:
            if error.code != "unknown_trace" or text == "latest":
                raise
            if group:
                return "group", group
            detail = f"There is no trace and no group {text!r} on {self.url}."
            raise NotFoundError(error.code, error.title, detail, error.status) from error
        if group:
            raise AmbiguousTargetError(text, [trace], group)
        return "trace", trace

    @asynccontextmanager
    async def download(
        self,
        trace: Ref,
        *,
        form: Optional[str] = None,
        order: str = "time",
        redact: bool = False,
        selection: SelectionLike = None,
        **criteria: Unpack[Criteria],
    ) -> AsyncIterator[AsyncDownload]:
        """Yield a download of the uploaded file (`original`), or of the events in another format.

        `json` and `json.gz` are the document, `pftrace` and `pftrace.gz` Perfetto's protobuf, and `parquet` the
        columns. The default is `original`, or `json.gz` for a derived trace or a selection. A selection is not
        available as `original` and `parquet`.
        """
        parameters = {"format": form, "selection": compact(selection, criteria), "order": order, "redact": redact}
        async with self._connection.stream(
            "GET",
            f"{trace_path(trace)}/download",
            params=given(parameters),
            timeout=patience(read=SYNC_S),  # the server may queue it, and sort
        ) as response:
            yield AsyncDownload(response, fallback=id_of(trace))

    async def download_to(  # noqa: PLR0913 - one parameter for each option
        self,
        trace: Ref,
        path: Union[str, os.PathLike[str]] = ".",
        *,
        overwrite: bool = False,
        form: Optional[str] = None,
        order: str = "time",
        redact: bool = False,
        on_bytes: Optional[BytesReceived] = None,
        selection: SelectionLike = None,
        **criteria: Unpack[Criteria],
    ) -> Path:
        """Download into a file, which appears when it is complete, and return its path.

        Args:
            trace: the trace.
            path: the file, or an existing folder, in which the file has the trace's name.
            overwrite: whether to replace an existing file.
            form: the format, as for `download`.
            order: the order of events in JSON: by `time`, or as in the `original`.
            redact: whether to hide secrets.
            on_bytes: receives the number of received bytes, and the total or 0.
            selection: the events to download; by default all.
            criteria: fields of the selection, as keyword arguments.

        Raises:
            FileExistsError: the file exists.
            DamagedDownloadError: the bytes do not match the server's digest.
        """
        part = chosen(selection, criteria)
        async with self.download(trace, form=form, order=order, redact=redact, selection=part) as transfer:
            target = await in_thread(_file_at, Path(path), transfer.name, overwrite=overwrite)
            unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
            try:
                with unfinished.open("wb") as file:
                    await transfer.write_to(file, on_bytes)
                unfinished.replace(target)
            finally:
                unfinished.unlink(missing_ok=True)
        return target

    async def pin(self, trace: Ref, *, pinned: bool = True) -> Json:
        """Keep the trace however old it is, or let retention delete it again; return it."""
        return await self._connection.json("PATCH", trace_path(trace), json={"pinned": pinned}, repeatable=True)

    async def move(self, trace: Ref, group: Optional[str]) -> Json:
        """Move the trace to the group of a name, which is created if there is none, or to no group; return it."""
        return await self._connection.json("PATCH", trace_path(trace), json={"group": group}, repeatable=True)

    async def delete(self, trace: Ref) -> None:
        """Delete the trace, with its columns and engines."""
        await self._connection.answer("DELETE", trace_path(trace))

    def perfetto_url(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: Optional[str] = None,
        source: Optional[str] = None,
        slice_: Optional[str] = None,
        **criteria: Unpack[Criteria],
    ) -> str:
        """Return the link that opens the Perfetto UI on the trace, or on a selection of it.

        By default, the engine has all arguments of a small trace, and the essential ones of a large trace: the UI then
        gets the others of a slice as it is selected. `source` is as for `sql`. If `slice_` is given, the UI opens at
        that slice: `position:123`, `at:1695000000123:aten::mm` or `id:456`.
        """
        parameters = link_parameters(selection, criteria, args, source, slice_)
        return f"{self.url}/api/v1/{trace_path(trace)}/perfetto{'?' if parameters else ''}{urlencode(parameters)}"

    async def check_perfetto(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: Optional[str] = None,
        source: Optional[str] = None,
        slice_: Optional[str] = None,
        **criteria: Unpack[Criteria],
    ) -> None:
        """Raise `ApiError` if the server refuses the link of `perfetto_url`."""
        params = link_parameters(selection, criteria, args, source, slice_)
        async with self._connection.stream("GET", f"{trace_path(trace)}/perfetto", redirects=True, params=params):
            pass

    async def open(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: Optional[str] = None,
        source: Optional[str] = None,
        slice_: Optional[str] = None,
        **criteria: Unpack[Criteria],
    ) -> str:
        """Open the link of `perfetto_url` in the browser, and return it; raises `ApiError` if the server refuses it."""
        import webbrowser  # noqa: PLC0415 - it loads much that other methods do not need

        part = chosen(selection, criteria)
        await self.check_perfetto(trace, selection=part, args=args, source=source, slice_=slice_)
        link = self.perfetto_url(trace, selection=part, args=args, source=source, slice_=slice_)
        await in_thread(webbrowser.open, link)
        return link


def _file_at(path: Path, name: str, *, overwrite: bool) -> Path:
    """Return the file to write: the path, or the file of that name in it; raises `FileExistsError`."""
    target = path / name if path.is_dir() else path
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; `overwrite=True` replaces it")
    return target

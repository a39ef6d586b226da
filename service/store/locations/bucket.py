"""A bucket as a location: Amazon S3 and servers that speak its protocol, Google Cloud Storage, and Azure.

Credentials and endpoints come from the environment, the machine or the cloud's own files, as obstore and boto3 find
them: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME
and so on. A URL has none.
"""

import io
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from service.store.locations import s3_environment
from service.store.locations.location import Entry, ReadMeter
from service.trace.errors import (
    BadLocation,
    FleetUnavailable,
    LocationDenied,
    LocationError,
    LocationUnavailable,
    SourceChanged,
    UnknownLocation,
)

try:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url
except ImportError as missing:
    raise FleetUnavailable(
        "Buckets need further packages: install tracedock-server[fleet], for example `pip install '.[fleet]'`."
    ) from missing

if TYPE_CHECKING:
    from obstore import GetOptions

PIECE = 8 << 20
"""Bytes of a request for a part of an object."""
_AHEAD = 4  # parts that are requested before they are read
_UPLOADS = 4  # files that are uploaded at a time
_RETRY_S = "TRACEDOCK_BUCKET_RETRY_S"
_RETRY_DEFAULT_S = 60.0
_RETRIES_MAX = 10_000  # the time is the limit

_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*(.*?)\s*</Message>", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3})")
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = (401, 403)


class Bucket:
    """The part of a bucket below a prefix; see `Location` for the methods."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise BadLocation(f"A bucket's URL is like {parts.scheme}://bucket/folder, without credentials or options.")
        self.url = url.rstrip("/")
        self.meter = ReadMeter()
        try:
            self._store: Any = from_url(self.url, **_options(parts.scheme))
        except exceptions.BaseError as error:
            raise BadLocation(f"{self.url} can't be used: {_first_line(error)}") from error

    def entries(self, below: str = "") -> Iterator[Entry]:
        """List objects; see `Location`."""
        with self._errors(below):
            listed = [meta for metas in obstore.list(self._store, below or None) for meta in metas]
            if below and not listed:
                with suppress(FileNotFoundError):
                    listed = [obstore.head(self._store, below)]
        for meta in sorted(listed, key=lambda meta: meta["path"]):
            if not any(part.startswith(".") for part in meta["path"].split("/")):
                yield _entry(meta)

    def entry(self, name: str) -> Entry | None:
        """Return the object of a name as it is now; None if there is none."""
        with suppress(FileNotFoundError), self._errors(name):
            return _entry(obstore.head(self._store, name))
        with self._errors(name):
            next(iter(obstore.list(self._store, name)), None)  # unlike the above, it fails if there is no bucket
        return None

    def open(self, entry: Entry) -> BufferedReader:
        """Open an object; see `Location`. Parts of it are requested ahead, each with retries of its own."""
        return self.open_part(entry, 0, entry.size)

    def open_part(self, entry: Entry, start: int, end: int) -> BufferedReader:
        """Open the bytes of an object from `start` to `end`, as `open` does."""

        def read(start: int, end: int) -> bytes:
            try:
                return self.read_range(entry, start, end)
            except UnknownLocation as error:
                raise SourceChanged(f"{entry.name} was removed before it was read.") from error

        return BufferedReader(_Ranges(read, start, end), PIECE)

    def read_range(self, entry: Entry, start: int, end: int) -> bytes:
        """Read a part of an object; see `Location`."""
        options: GetOptions = {"range": (start, end)}
        if entry.version.startswith(('"', "W/")):
            options["if_match"] = entry.version
        try:
            with self._errors(entry.name):
                content = self.meter.counted(bytes(obstore.get(self._store, entry.name, options=options).bytes()))
        except FileNotFoundError as error:
            raise UnknownLocation(f"There is no {entry.name} in {self.url}.") from error
        if len(content) != end - start:
            raise SourceChanged(f"{entry.name} was changed while it was read.")
        return content

    def read(self, name: str) -> bytes | None:
        """Read an object; see `Location`."""
        with suppress(FileNotFoundError), self._errors(name):
            return self.meter.counted(bytes(obstore.get(self._store, name).bytes()))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write an object; see `Location`."""
        with self._errors(name):
            obstore.put(self._store, name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a new object; see `Location`."""
        with suppress(exceptions.AlreadyExistsError), self._errors(name):
            obstore.put(self._store, name, content, mode="create", use_multipart=False)
            return True
        return False

    def remove(self, name: str) -> None:
        """Remove an object; see `Location`."""
        with suppress(FileNotFoundError), self._errors(name):
            obstore.delete(self._store, name)

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Make a folder below TMPDIR; see `Location`."""
        with tempfile.TemporaryDirectory(prefix="tracedock-") as scratch:
            yield Path(scratch)

    def sweep(self) -> None:
        """Remove nothing; see `Location`. A rule of the bucket ends unfinished uploads, which are no objects."""

    def publish(self, made: Path, name: str, last: str) -> bool:
        """Upload a folder; see `Location`. Concurrent uploads write the same bytes."""
        files = [path.relative_to(made).as_posix() for path in sorted(made.rglob("*")) if path.is_file()]
        with ThreadPoolExecutor(_UPLOADS, "uploads") as threads:
            others = [file for file in files if file != last]
            for _ in threads.map(lambda file: self._upload(made / file, f"{name}/{file}"), others):
                pass
        return self.create(f"{name}/{last}", (made / last).read_bytes())

    def _upload(self, path: Path, name: str) -> None:
        with self._errors(name):
            obstore.put(self._store, name, path)

    def fetch(self, name: str, into: Path, files: list[str]) -> Path:
        """Download files; see `Location`."""
        for file in files:
            with suppress(FileNotFoundError), self._errors(name):
                chunks = obstore.get(self._store, f"{name}/{file}").stream(PIECE)
                path = into / file
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as target:
                    for chunk in chunks:
                        target.write(chunk)
        return into

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn errors of the library into those of locations; a missing object stays a `FileNotFoundError`."""
        try:
            yield
        except exceptions.PreconditionError as error:
            raise SourceChanged(f"{name} was changed while it was read.") from error
        except (exceptions.AlreadyExistsError, FileNotFoundError) as error:
            if (code := _CODE.search(str(error))) and code[1] in _MISSING_BUCKET:
                raise self._error(error, name) from error
            raise
        except exceptions.BaseError as error:
            raise self._error(error, name) from error

    def _error(self, error: Exception, name: str) -> LocationError:
        text = str(error)
        code, message, status = _CODE.search(text), _MESSAGE.search(text), _STATUS.search(text)
        reason = f"{code[1]}: {message[1]}" if code and message else _first_line(error)
        where = f"{self.url}/{name}" if name else self.url
        if code and code[1] in _MISSING_BUCKET:
            return UnknownLocation(f"{where}: there is no such bucket.")
        denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        if denied or (status and int(status[1]) in _DENIED):
            return LocationDenied(f"{where} refuses these credentials: {reason}")
        return LocationUnavailable(f"{where} can't be used: {reason}")


class _Ranges(io.RawIOBase):
    """An object that is read in parts, some of which are requested ahead.

    Args:
        read: returns the bytes from a start to an end.
        start: where to begin in the object, in bytes.
        end: where to end.
    """

    def __init__(self, read: Any, start: int, end: int) -> None:
        self._read, self._next, self._end = read, start, end
        self._threads = ThreadPoolExecutor(_AHEAD, "ranges")
        self._pieces: deque[Future[bytes]] = deque()
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._next < self._end and len(self._pieces) < _AHEAD:
            end = min(self._next + PIECE, self._end)
            self._pieces.append(self._threads.submit(self._read, self._next, end))
            self._next = end
        if not self._left and self._pieces:
            self._left = memoryview(self._pieces.popleft().result())
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()


def _entry(meta: Any) -> Entry:
    """Return an object as the library describes it."""
    return Entry(meta["path"], meta["size"], meta["e_tag"] or str(meta["last_modified"]))


def _options(scheme: str) -> dict[str, Any]:
    """Return the options of a store: retries, and what the environment says that the library does not read."""
    limit = timedelta(seconds=float(os.environ.get(_RETRY_S, _RETRY_DEFAULT_S)))
    backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=3), "base": 2}
    options: dict[str, Any] = {
        "retry_config": {"max_retries": _RETRIES_MAX, "retry_timeout": limit, "backoff": backoff},
        "client_options": {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=120)},
    }
    if scheme == "s3":
        options |= _of_s3(options["client_options"])
    return options


def _of_s3(client_options: dict[str, Any]) -> dict[str, Any]:
    """Return options of S3: a plain endpoint is allowed if it is set, and boto3 finds what only it knows."""
    options: dict[str, Any] = {"region": s3_environment.region()}
    if endpoint := s3_environment.endpoint():
        options["endpoint"] = endpoint
        client_options["allow_http"] = endpoint.startswith("http://")
    # without a provider, the library finds the keys in the environment, or the machine's role
    if not os.environ.get("AWS_ACCESS_KEY_ID") and (provider := s3_environment.boto3_provider()):
        options["credential_provider"] = provider
    return options


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip().rstrip(".")[:400] + "."

"""A tus client that sends any request, valid or not."""

import base64
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.server import Server

VERSION = {"Tus-Resumable": "1.0.0"}
CHUNK = VERSION | {"Content-Type": "application/offset+octet-stream"}


def metadata(**values: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in values.items())


def creation(server: Server, length: int | None, name: str = "a.json", **headers: str) -> httpx.Response:
    """Request a new upload; underscores in header names become hyphens."""
    length_field = {"Upload-Length": str(length)} if length is not None else {"Upload-Defer-Length": "1"}
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.api.post(
        "/uploads", headers=VERSION | length_field | {"Upload-Metadata": metadata(filename=name)} | more
    )


def begin(server: Server, length: int | None, name: str = "a.json", **headers: str) -> str:
    """Create an upload and return its URL."""
    answer = creation(server, length, name, **headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Upload-Offset"] == "0"
    return f"{server.url}{answer.headers['Location']}"


def id_of(upload: str) -> str:
    return upload.rpartition("/")[2]


def send(server: Server, upload: str, offset: int, content: bytes, **headers: str) -> httpx.Response:
    """Send a chunk."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.api.patch(upload, content=content, headers=CHUNK | {"Upload-Offset": str(offset)} | more)


def head(server: Server, upload: str) -> httpx.Response:
    return server.api.head(upload, headers=VERSION)


def offset(server: Server, upload: str) -> int:
    """The offset of an upload, in bytes."""
    answer = head(server, upload)
    assert answer.status_code == 200
    return int(answer.headers["Upload-Offset"])


def chunk_head(upload: str, offset: int, length: int | None, *more: str) -> bytes:
    """The raw request head of a chunk; without a length, its body is sent with chunked encoding."""
    parts = urlsplit(upload)
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    fields = [f"Host: {parts.netloc}", framing, f"Upload-Offset: {offset}", *more]
    fields += [f"{name}: {value}" for name, value in CHUNK.items()]
    return "\r\n".join([f"PATCH {parts.path} HTTP/1.1", *fields, "", ""]).encode()


def _send_all(upload: str, path: Path, log: Path, chunk: int) -> None:
    """Send the missing bytes of a file and retry after every failure; log each chunk before and after it is sent."""
    size, offset = path.stat().st_size, None
    with path.open("rb") as file, log.open("a", buffering=1) as progress, httpx.Client(trust_env=False) as client:
        while offset != size:
            try:
                if offset is None:
                    offset = int(client.head(upload, headers=VERSION).raise_for_status().headers["Upload-Offset"])
                file.seek(offset)
                piece = file.read(chunk)
                progress.write(f"send {offset} {len(piece)}\n")
                answer = client.patch(upload, content=piece, headers=CHUNK | {"Upload-Offset": str(offset)})
                offset = int(answer.raise_for_status().headers["Upload-Offset"])
                progress.write(f"kept {offset} 0\n")
            except httpx.HTTPError:
                offset = None
                time.sleep(0.01)


if __name__ == "__main__":
    _send_all(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))

"""The command `upload` where the server's package is not installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from tracedock.errors import ClientError, UnreachableError

if TYPE_CHECKING:
    from tracedock.client import Client
    from tracedock.spool import Spool

SUFFIXES = (
    *(".pickle", ".pickle.gz", ".pickle.zst"),
    *(".sqlite", ".sqlite.gz", ".sqlite.zst"),
    *(".pftrace", ".pftrace.gz", ".pftrace.zst"),
    *(".json", ".json.gz", ".json.zst"),
)
"""Endings of the names of traces that are sent of a folder."""
STDIN = "-"


class Item(NamedTuple):
    """A trace to upload: the path of its file, None for the standard input; its name and its group."""

    path: Optional[Path]
    name: Optional[str]
    group: Optional[str]


def add_commands(commands: Any) -> None:
    """Add the command to the subparsers of a command line; `run` of its arguments takes these and a client."""
    parser = commands.add_parser(
        "upload", help="Upload files, folders, or what training has left in its spool folder. Prints the ids."
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file, a folder, or - for the standard input")
    parser.add_argument("--group", metavar="NAME", help="name of their group; by default that of the folder")
    parser.add_argument("--name", metavar="NAME", help="name of the trace, if there is one PATH, which is a file or -")
    parser.add_argument("--spool", type=Path, metavar="FOLDER", help="send what training has left there, and remove it")
    parser.add_argument("--any-url", action="store_true", help="with --spool: also what is meant for other servers")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until the traces are ready")
    parser.add_argument("--no-resume", action="store_true", help="send each file in one request")
    parser.set_defaults(run=upload)


def upload(arguments: argparse.Namespace, client: Client) -> int:
    """Upload what the arguments name, print the ids, and return the exit code: 1 if a trace was refused or failed."""
    if bool(arguments.paths) == bool(arguments.spool):
        raise argparse.ArgumentError(None, "give either PATH or --spool FOLDER")
    if arguments.spool:
        return send_spool(client, arguments.spool, any_url=arguments.any_url)
    is_sound = True
    for item in list(_items(arguments)):  # all of them are checked before the first one is sent
        is_sound &= _attempted(item.name or str(item.path), partial(_send, client, item, arguments))
    return 0 if is_sound else 1


def send_spool(client: Client, folder: Path, *, any_url: bool = False) -> int:
    """Send the traces of a spool folder and remove them, print their ids, and return the exit code.

    Args:
        client: the client.
        folder: the folder.
        any_url: whether to send traces that are meant for other servers, too.

    Raises:
        UnreachableError: no server answers; the traces stay.
        NotADirectoryError: there is no such folder.
    """
    from tracedock.spool import Spool  # noqa: PLC0415 - no Windows has its locks

    if not folder.is_dir():
        raise NotADirectoryError(None, "there is no such folder", str(folder))
    spool = Spool(folder)
    is_sound, elsewhere = True, dict[str, int]()
    for identity in spool.identities():
        send = partial(_send_spooled, client, spool, identity, elsewhere, any_url=any_url)
        is_sound &= _attempted(f"{identity}.json", send)
    for url, count in elsewhere.items():
        _note(f"{count} of the traces are for {url}: name it with --url, or send them here with --any-url.")
    return 0 if is_sound else 1


def _send_spooled(client: Client, spool: Spool, identity: str, elsewhere: dict[str, int], *, any_url: bool) -> bool:
    with spool.claimed(identity) as entry:
        if entry is None:
            return True
        try:
            trace = spool.trace(entry)
        except ValueError as error:
            reason = (
                f"it does not describe a trace ({error}). The trace beside it stays; `tracedock upload FILE` sends it."
            )
            raise OSError(reason) from error
        if not any_url and not _is_same(trace.url, client.url):
            elsewhere[trace.url] = elsewhere.get(trace.url, 0) + 1
            return True
        with _Progress(trace.name) as progress:
            sent = client.upload(
                trace.path, name=trace.name, group=trace.group, key=trace.key,
                on_bytes=progress.show, on_retry=progress.note_retry,
            )  # fmt: skip
        entry.remove()
        print(sent["id"], flush=True)
    return True


def _send(client: Client, item: Item, arguments: argparse.Namespace) -> bool:
    source = sys.stdin.buffer if item.path is None else item.path
    with _Progress(item.name or str(item.path)) as progress:
        trace = client.upload(
            source, name=item.name, group=item.group, resume=not arguments.no_resume,
            on_bytes=progress.show, on_retry=progress.note_retry,
        )  # fmt: skip
    print(trace["id"], flush=True)
    if not arguments.no_wait:
        client.wait(trace)
    return True


def _items(arguments: argparse.Namespace) -> Iterator[Item]:
    """Yield what the paths name.

    Raises:
        argparse.ArgumentError: a path is not there, a folder has no trace, or a name has no use.
    """
    if arguments.name and (len(arguments.paths) > 1 or Path(arguments.paths[0]).is_dir()):
        raise argparse.ArgumentError(None, "--name is for one file or -")
    for text in arguments.paths:
        path = Path(text)
        if text == STDIN:
            yield Item(None, arguments.name or "stdin.pt.trace.json", arguments.group)
        elif path.is_dir():
            yield from _of_folder(path, arguments.group)
        elif path.exists():
            yield Item(path, arguments.name, arguments.group)
        else:
            raise argparse.ArgumentError(None, f"{text}: there is no such file")


def _of_folder(folder: Path, group: Optional[str]) -> Iterator[Item]:
    files = [path for path in sorted(folder.rglob("*")) if path.name.lower().endswith(SUFFIXES) and path.is_file()]
    visible = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not visible:
        raise argparse.ArgumentError(None, f"{folder}: the folder has no {', '.join(SUFFIXES)}")
    for path in visible:
        yield Item(path, None, group or folder.resolve().name or None)


def _attempted(label: str, send: Callable[[], bool]) -> bool:
    """Return whether an upload succeeded; print its error, so that others can follow. `UnreachableError` ends all."""
    try:
        return send()
    except UnreachableError:
        raise
    except (ClientError, OSError) as error:
        _note(f"error: {label}: {error}")
        return False


def _is_same(url: str, other: str) -> bool:
    from tracedock.messages import base_url  # noqa: PLC0415 - httpx loads slowly

    try:
        return base_url(url).copy_with(userinfo=b"") == base_url(other).copy_with(userinfo=b"")
    except ValueError:
        return False


class _Progress:
    """Progress of an upload on stderr: a share that is rewritten on a terminal, else nothing."""

    def __init__(self, name: str) -> None:
        self._name = _printable(name)
        self._is_shown = sys.stderr.isatty()
        self._text = ""

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._text:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, sent: int, total: int) -> None:
        """Show the sent bytes; `total` is 0 if unknown."""
        text = f"{self._name}: {100 * sent // total} %" if total else f"{self._name}: {sent // 1_000_000} MB"
        if self._is_shown and text != self._text:
            self._text = text
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def note_retry(self, error: ClientError, pause_s: float) -> None:
        """Print that an upload is repeated."""
        _note(f"{self._name}: {error}; retrying in {pause_s:g} s")


def _note(text: str) -> None:
    print("\n".join(map(_printable, text.splitlines())), file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """Return the text with unprintable characters escaped: a name must not move the cursor of a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)

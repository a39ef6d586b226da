"""Attachments belong to a trace or a group, and leave no file and no record behind, whenever the server is killed."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from service.store.attachments import Attachment, Attachments
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.groups import Groups
from service.store.uploads import Upload
from service.trace.errors import UnknownAttachment, UnknownGroup, UnknownTrace
from service.trace.summary import Summary


@pytest.fixture
def attachments(catalog: Catalog, folder: Folder) -> Attachments:
    return Attachments(catalog.connection, folder)


@pytest.fixture
def groups(catalog: Catalog, attachments: Attachments) -> Groups:
    return Groups(catalog.connection, on_removed=attachments.remove_orphans)


def add_trace(catalog: Catalog, trace_id: str, group: str | None = None, rank: int | None = None) -> str:
    summary = Summary(format="json", rank=rank)
    return catalog.add(trace_id, name=f"{trace_id}.json", size=1, sha256="", summary=summary, group=group).id


def attach(
    attachments: Attachments, folder: Folder, attachment_id: str, content: bytes = b"text", **fields: Any
) -> Attachment:
    """Attach bytes as a request does."""
    fields = {"name": "a.txt", "kind": "text"} | fields
    with Upload(folder, attachment_id, limit=1 << 20, target=folder.attachment(attachment_id)) as upload:
        upload.write(content)
        return attachments.add(attachment_id, received=upload.keep(), **fields)[0]


def files(folder: Folder) -> set[str]:
    return {path.name for path in (*folder.attachments.iterdir(), *folder.incoming.iterdir())}


def ids(attachments: Attachments, owner: str) -> list[str]:
    return [attachment.id for attachment in attachments.page(owner, limit=99)]


def test_attachment_belongs_to_a_trace_or_a_group(
    catalog: Catalog, folder: Folder, attachments: Attachments, groups: Groups
) -> None:
    add_trace(catalog, "t", "run")
    [group] = groups.page(limit=1)
    first = attach(attachments, folder, "1", b"first", trace="t", name="et_rank3.json", kind="execution_trace")
    assert (first.trace, first.group_id, first.rank, first.size) == ("t", None, 3, 5)
    assert first.sha256 == hashlib.sha256(b"first").hexdigest()
    second = attach(attachments, folder, "2", group=group.id)
    assert (second.trace, second.group_id, second.rank) == (None, group.id, None)
    assert ids(attachments, "t") == ["1"]
    assert ids(attachments, group.id) == ["2", "1"]  # those of its traces, too
    assert attachments.path("1").read_bytes() == b"first"


def test_same_file_is_attached_once(catalog: Catalog, folder: Folder, attachments: Attachments) -> None:
    add_trace(catalog, "t")
    add_trace(catalog, "u")
    assert attach(attachments, folder, "1", trace="t").id == "1"
    assert attach(attachments, folder, "2", trace="t").id == "1"
    assert attach(attachments, folder, "3", trace="u").id == "3"
    assert attach(attachments, folder, "4", trace="t", name="b.txt").id == "4"
    assert attach(attachments, folder, "5", b"other", trace="t").id == "5"
    assert files(folder) == {"1", "3", "4", "5"}


def test_attachment_of_an_unknown_owner_leaves_no_file(
    catalog: Catalog, folder: Folder, attachments: Attachments
) -> None:
    with pytest.raises(UnknownTrace):
        attach(attachments, folder, "1", trace="nowhere")
    with pytest.raises(UnknownGroup):
        attach(attachments, folder, "2", group="nowhere")
    assert files(folder) == set()


def test_attachments_go_with_their_owner(
    catalog: Catalog, folder: Folder, attachments: Attachments, groups: Groups
) -> None:
    add_trace(catalog, "t", "run")
    [group] = groups.page(limit=1)
    for attachment_id, owner in (("1", {"trace": "t"}), ("2", {"group": group.id}), ("3", {"trace": "t"})):
        attach(attachments, folder, attachment_id, attachment_id.encode(), **owner)
    attachments.remove("3")
    assert files(folder) == {"1", "2"}
    groups.remove(group.id)
    assert files(folder) == {"1"}
    catalog.remove("t")
    with pytest.raises(UnknownAttachment):
        attachments.get("1")
    attachments.remove_orphans()
    assert files(folder) == set()
    for act in (attachments.get, attachments.remove):
        with pytest.raises(UnknownAttachment, match="'1'"):
            act("1")


def test_group_without_traces_goes_with_its_attachments(
    catalog: Catalog, folder: Folder, attachments: Attachments, groups: Groups
) -> None:
    group = groups.add("run")
    attach(attachments, folder, "1", group=group.id)
    groups.remove_empty(group.id)
    assert files(folder) == set()


def test_execution_traces_of_a_trace_are_its_own_then_those_of_its_rank(
    catalog: Catalog, folder: Folder, attachments: Attachments, groups: Groups
) -> None:
    add_trace(catalog, "t", "run", rank=1)
    [group] = groups.page(limit=1)
    for number, fields in enumerate(
        (
            {"group": group.id, "name": "et_rank1.json"},
            {"group": group.id, "name": "et_rank0.json"},
            {"group": group.id, "name": "et.json"},
            {"trace": "t", "name": "et.json"},
            {"trace": "t", "name": "later.json"},
        )
    ):
        attach(attachments, folder, str(number), str(number).encode(), kind="execution_trace", **fields)
    attach(attachments, folder, "text", trace="t")
    files = attachments.execution_traces(catalog.get("t"))
    assert [(file.name, file.path.name) for file in files] == [
        ("later.json", "4"),
        ("et.json", "3"),
        ("et_rank1.json", "0"),
    ]


def test_attachments_of_one_owner_may_come_and_go_at_the_same_time(
    catalog: Catalog, folder: Folder, attachments: Attachments
) -> None:
    add_trace(catalog, "t")

    def work(number: int) -> None:
        for turn in range(10):
            name = f"{number}-{turn}"
            attach(attachments, folder, name, name.encode(), trace="t", name=name)
            if turn % 2:
                attachments.remove(name)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = {f"{number}-{turn}" for number in range(4) for turn in range(0, 10, 2)}
    assert set(ids(attachments, "t")) == files(folder) == kept


# -- kills -----------------------------------------------------------------------------------------------------------


def ends_in_fork(act: Callable[[], object], stop_at: int) -> bool:
    """Run an act in a fork that kills itself before its n-th system change; return whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        left = iter(range(stop_at, -1, -1))

        def count() -> None:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        _before(count)
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _before(count: Callable[[], None]) -> None:
    """Call a function before each sync of a file, each rename and each removal."""
    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
        original = getattr(owner, name)

        def counted(*args: Any, original: Any = original, **options: Any) -> Any:
            count()
            return original(*args, **options)

        setattr(owner, name, counted)


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[Callable[[], tuple[Catalog, Folder, Attachments]]]:
    """Return a function that opens the store anew, as a server that starts."""
    catalogs: list[Catalog] = []
    folder = Folder(tmp_path / "kills")

    def reopen() -> tuple[Catalog, Folder, Attachments]:
        for catalog in catalogs:
            catalog.close()
            folder.close()
        catalogs.clear()
        folder.open()
        catalogs.append(Catalog(tmp_path / "kills.sqlite"))
        folder.sweep(catalogs[0].ids())
        attachments = Attachments(catalogs[0].connection, folder)
        attachments.sweep()
        return catalogs[0], folder, attachments

    yield reopen
    catalogs[0].close()
    folder.close()


def remove_owner(catalog: Catalog, _: Folder, attachments: Attachments, owner: str, __: str) -> None:
    catalog.remove(owner)
    attachments.remove_orphans()


ACTS: dict[str, Callable[[Catalog, Folder, Attachments, str, str], object]] = {
    "attach": lambda _, folder, attachments, owner, new: attach(attachments, folder, new, trace=owner),
    "remove": lambda _, __, attachments, ___, attached: attachments.remove(attached),
    "remove owner": remove_owner,
}


@pytest.mark.parametrize("act", ACTS)
def test_kill_between_any_two_steps_leaves_all_or_nothing(
    act: str, reopened: Callable[[], tuple[Catalog, Folder, Attachments]]
) -> None:
    catalog, folder, attachments = reopened()
    outcomes = []
    for stop_at in range(40):
        owner, attachment_id = add_trace(catalog, f"t{stop_at}"), f"a{stop_at}"
        if act != "attach":
            attach(attachments, folder, attachment_id, trace=owner)

        change = partial(ACTS[act], catalog, folder, attachments, owner, attachment_id)
        ended = ends_in_fork(change, stop_at)
        catalog, folder, attachments = reopened()
        kept = ids(attachments, owner)
        assert files(folder) & {attachment_id} == set(kept)
        assert kept in ([], [attachment_id])
        if kept:
            assert attachments.path(attachment_id).read_bytes() == b"text"
        outcomes.append(bool(kept))
        if ended:
            assert kept == ([attachment_id] if act == "attach" else [])
            break
    assert ended
    assert len(outcomes) > 1  # it was killed at least once

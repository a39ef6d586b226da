"""A folder and a bucket behave alike: whole writes, one winner, reads that notice changes, errors that say where."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from service.store.locations.location import Entry, Location, location_of
from service.trace.errors import (
    BadLocation,
    LocationDenied,
    LocationUnavailable,
    SourceChanged,
    UnknownLocation,
)


def names(place: Location, below: str = "") -> list[str]:
    return [entry.name for entry in place.entries(below)]


def test_what_is_written_is_listed_and_read(place: Location) -> None:
    for name in ("b/two.json", "a.json", "b/c/three.json", "bb.json"):
        place.write(name, name.encode())
    assert names(place) == ["a.json", "b/c/three.json", "b/two.json", "bb.json"]
    assert names(place, "b") == ["b/c/three.json", "b/two.json"]
    assert names(place, "a.json") == ["a.json"]
    assert names(place, "nothing") == []
    assert place.read("b/two.json") == b"b/two.json"
    assert place.read("nothing") is None
    assert [entry.size for entry in place.entries("a.json")] == [6]
    place.write("a.json", b"new")
    assert place.read("a.json") == b"new"
    place.remove("a.json")
    place.remove("a.json")
    assert place.read("a.json") is None


def test_of_concurrent_creations_one_wins(place: Location) -> None:
    with ThreadPoolExecutor(8) as threads:
        created = [*threads.map(lambda number: place.create("one", b"%d" % number), range(8))]
    assert created.count(True) == 1
    assert place.read("one") == b"%d" % created.index(True)


def test_content_of_many_pieces_is_read_in_order(place: Location) -> None:
    content = os.urandom(1 << 20) * 20 + b"end"
    place.write("large", content)
    [entry] = place.entries("large")
    with place.open(entry) as file:
        assert file.read(7) == content[:7]
        assert file.read() == content[7:]


def test_content_that_changes_between_list_and_read_is_refused(place: Location) -> None:
    place.write("large", b"x" * 1000)
    [entry] = place.entries("large")
    place.write("large", b"y" * 1001)
    with place.open(entry) as file, pytest.raises(SourceChanged, match="large was changed while it was read"):
        file.read()


def test_published_folder_is_whole_and_published_once(place: Location, tmp_path: Path) -> None:
    def publish(number: int) -> bool:
        with place.making() as scratch:
            made = scratch / "made"
            (made / "sub").mkdir(parents=True)
            for name in ("first", "sub/second", "last"):
                (made / name).write_text(name)
            return place.publish(made, "traces/one", "last")

    with ThreadPoolExecutor(4) as threads:
        published = [*threads.map(publish, range(4))]
    assert published.count(True) == 1
    assert names(place) == ["traces/one/first", "traces/one/last", "traces/one/sub/second"]
    copies = tmp_path / "copies"
    copies.mkdir()
    fetched = place.fetch("traces/one", copies, ["first", "sub/second", "missing"])
    assert (fetched / "sub" / "second").read_text() == "sub/second"
    assert not (fetched / "missing").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://host/x", "ftp:// is no known kind of location. Known are paths of folders, and s3://, gs://, az://."),
        ("", "may not be empty"),
        ("s3://key:secret@bucket/x", "without credentials"),
        ("s3://bucket/x?versionId=1", "without credentials or options"),
    ],
)
def test_malformed_location_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadLocation, match=reason.replace(".", r"\.")) as refused:
        location_of(text)
    assert "secret" not in refused.value.detail


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownLocation, match=r"There is no folder .*/nowhere"):
        names(location_of(str(tmp_path / "nowhere")))


def test_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocationUnavailable, match="/file/x can't be used: File exists"):
        location_of(str(tmp_path / "file")).write("x", b"")


@pytest.mark.system
def test_bucket_refuses_wrong_credentials(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    wrong = location_of(bucket.url)
    for attempt in (lambda: names(wrong), lambda: wrong.read("x"), lambda: wrong.write("x", b"")):
        with pytest.raises(LocationDenied, match="refuses these credentials") as refused:
            attempt()
        assert "another-secret" not in refused.value.detail


@pytest.mark.system
def test_missing_bucket_is_named(bucket: Location) -> None:
    missing = location_of("s3://nowhere/x")
    with pytest.raises(UnknownLocation, match="s3://nowhere/x: there is no such bucket"):
        names(missing)


@pytest.mark.system
def test_server_that_is_down_is_an_error_after_the_retries(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TRACEDOCK_BUCKET_RETRY_S", "0.5")
    with pytest.raises(LocationUnavailable, match="can't be used"):
        location_of("s3://traces/x").read("x")


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@contextmanager
def throttling(refusals: int) -> Iterator[tuple[str, list[str]]]:
    """Run a server that refuses requests at first, as S3 does under load; yield its URL and what it answered."""
    answers: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_refused = len(answers) < refusals
            answers.append("refused" if is_refused else "content")
            body = _SLOW_DOWN if is_refused else b"content"
            self.send_response(503 if is_refused else 200)
            for name, value in (("ETag", '"1"'), ("Last-Modified", "Wed, 25 Nov 2026 10:00:00 GMT")):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", answers
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("refusals", "limit_s"), [(3, "30"), (10_000, "0.5")], ids=["a while", "always"])
def test_store_that_throttles_is_asked_again_until_the_limit(
    monkeypatch: pytest.MonkeyPatch, refusals: int, limit_s: str
) -> None:
    pytest.importorskip("obstore")
    with throttling(refusals) as (url, answers):
        for name, value in (
            ("AWS_ENDPOINT_URL", url), ("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "hidden"),
            ("TRACEDOCK_BUCKET_RETRY_S", limit_s),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        place = location_of("s3://traces/x")
        if refusals < 100:
            assert place.read("y") == b"content"
            assert answers == ["refused"] * refusals + ["content"]
        else:
            with pytest.raises(LocationUnavailable, match="SlowDown: Please reduce your request rate") as refused:
                place.read("y")
            assert len(answers) > 1
            assert "hidden" not in refused.value.detail


@pytest.mark.system
def test_range_past_the_end_means_that_the_object_was_changed(bucket: Location) -> None:
    bucket.write("small", b"x")
    [entry] = bucket.entries("small")
    longer = Entry(entry.name, 9 << 20, entry.version)
    with bucket.open(longer) as file, pytest.raises((SourceChanged, LocationUnavailable)):
        file.read()

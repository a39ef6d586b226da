from __future__ import annotations

import errno
import gzip
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tracedock.client import Client
from tracedock.shipper import Shipper, _run
from tracedock.spool import Entry, Spool

from tests.cli.double import Server, problem
from tests.client.test_spool import names, write

BODY = b'{"traceEvents": []}'


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool")
    spool.create()
    return spool


@pytest.fixture
def shipper(spool: Spool, client: Client) -> Shipper:
    return Shipper(spool, "http://here:1", client)


def test_trace_is_sent_once_it_is_compressed(spool: Spool, shipper: Shipper, server: Server) -> None:
    write(spool, "a", BODY)
    assert shipper.send_all()
    assert server.sent("PUT") == []
    shipper.compress_all()
    assert shipper.send_all()
    [request] = server.sent("PUT")
    assert gzip.decompress(request.body) == BODY
    assert request.query == {"group": "run"}
    assert request.path == "/traces/a.pt.trace.json.gz"
    assert names(spool) == []


def test_trace_that_has_arrived_before_a_kill_is_not_sent_again(
    spool: Spool, shipper: Shipper, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spool, "a", BODY)
    shipper.compress_all()
    with monkeypatch.context() as patch:
        patch.setattr(Entry, "remove", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            shipper.send_all()
    assert names(spool) == ["a.json", "a.trace.json.gz"]
    assert shipper.send_all()
    assert len(server.sent("PUT")) == 1
    assert names(spool) == []


def test_compression_is_not_done_while_another_one_holds_a_trace(spool: Spool, shipper: Shipper) -> None:
    write(spool, "a", BODY)
    write(spool, "b", BODY)
    with spool.claimed("a"):
        assert not shipper.compress_all()
        assert names(spool) == ["a.json", "a.trace.json", "b.json", "b.trace.json.gz"]
    assert shipper.compress_all()
    assert names(spool) == ["a.json", "a.trace.json.gz", "b.json", "b.trace.json.gz"]


def test_trace_that_is_locked_when_the_trainer_has_ended_is_sent_once_it_is_free(
    spool: Spool, shipper: Shipper, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spool, "a", BODY)
    lock = ExitStack()
    lock.enter_context(spool.claimed("a"))
    monkeypatch.setattr(time, "sleep", lambda seconds: lock.close())  # the first pass is over
    ended = 0  # no process has this number
    _run(shipper, ended)
    assert [gzip.decompress(request.body) for request in server.sent("PUT")] == [BODY]
    assert names(spool) == []


def _interrupt(entry: Entry) -> None:
    raise KeyboardInterrupt


def test_plain_trace_beside_its_compressed_form_is_left_over(spool: Spool, shipper: Shipper) -> None:
    write(spool, "a", BODY)
    (spool.folder / "a.trace.json.gz").write_bytes(gzip.compress(BODY))
    shipper.compress_all()
    assert names(spool) == ["a.json", "a.trace.json.gz"]


def test_trace_for_another_server_is_left_alone(spool: Spool, client: Client, server: Server) -> None:
    write(spool, "a", BODY)
    shipper = Shipper(spool, "http://elsewhere:1", client)
    shipper.compress_all()
    assert shipper.send_all()
    assert server.requests == []
    assert names(spool) == ["a.json", "a.trace.json"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_trace_that_cannot_be_compressed_is_sent_plain(
    spool: Spool,
    shipper: Shipper,
    server: Server,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(entry: Entry) -> None:
        raise OSError(code, "no luck")

    monkeypatch.setattr(Entry, "compress", fail)
    write(spool, "a", BODY)
    write(spool, "b", BODY + b" ")
    shipper.compress_all()
    assert shipper.send_all()
    assert [request.body for request in server.sent("PUT")] == [BODY, BODY + b" "]
    assert server.sent("PUT")[0].path == "/traces/a.pt.trace.json"
    assert names(spool) == []
    [line] = capsys.readouterr().err.splitlines()
    assert ("Make room" in line) == (code == errno.ENOSPC)


@pytest.mark.parametrize(("status", "advice"), [(401, "TRACEDOCK_TOKEN"), (507, "Make room"), (503, ""), (404, "URL")])
def test_passing_trouble_stops_the_pass_and_keeps_the_traces(
    spool: Spool, shipper: Shipper, server: Server, status: int, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for identity in "ab":
        write(spool, identity, BODY)
    shipper.compress_all()
    for _ in range(2):
        server.script("GET", "/traces", problem(status, "trouble", "Trouble", "Not now."))
        assert not shipper.send_all()
    assert len(server.requests) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert advice in line
    assert "Not now" in line
    assert shipper.send_all()
    assert names(spool) == []


def test_refused_trace_stays_and_the_next_one_is_sent(
    spool: Spool, shipper: Shipper, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    write(spool, "a", BODY)
    shipper.compress_all()
    server.script("PUT", "/traces/a.pt.trace.json.gz", problem(413, "too_large", "Too large", "Over the limit."))
    assert shipper.send_all()
    assert names(spool) == ["a.json", "a.trace.json.gz"]
    write(spool, "b", BODY + b" ")
    shipper.compress_all()
    assert shipper.send_all()
    assert names(spool) == ["a.json", "a.trace.json.gz"]
    assert len(server.sent("PUT")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "TRACEDOCK_MAX_UPLOAD_BYTES" in line


def test_damaged_description_is_reported_and_its_trace_stays(
    spool: Spool, shipper: Shipper, capsys: pytest.CaptureFixture[str]
) -> None:
    write(spool, "a", BODY)
    (spool.folder / "a.json").write_text("[")
    for _ in range(2):
        shipper.compress_all()
        assert shipper.send_all()
    assert names(spool) == ["a.json", "a.trace.json"]
    [line] = capsys.readouterr().err.splitlines()
    assert "a.json is damaged" in line

"""The ingest child reads a trace, even during its upload, ends with its server, and uses bounded memory."""

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Complete, Crashed, Done, Failed, Grown, Progressed, frame_head
from service.jobs.children.tasks.ingest import IngestTask
from service.store.external_files import mark_of
from service.trace.errors import ErrorDocument
from tests.jobs.frames import Frame, call, command, frames_of, result_of, send
from tests.jobs.frames import started as started_child
from tests.server import bytes_read
from tests.traces import TraceShape, expected, sized, write_trace
from tests.waiting import PATIENCE_S

PEAK_MB = 1000
STARTER = """
import resource, subprocess, sys
worker = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdin.write(bytes.fromhex(sys.argv[1]))
worker.stdin.flush()
sys.stdout.buffer.write(worker.stdout.read())
worker.wait()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def task(original: Path, incoming: Path = Path("nowhere"), mark: str | None = None) -> IngestTask:
    return IngestTask(incoming, str(original), Path(f"{original}.columns"), "t.json", mark)


def started(original: Path, incoming: Path = Path("nowhere"), mark: str | None = None) -> subprocess.Popen[bytes]:
    worker = started_child(Kind.INGEST)
    send(worker, call(task(original, incoming, mark)))
    return worker


def report(worker: subprocess.Popen[bytes], state: Grown | Complete) -> None:
    send(worker, frame_head(state))


def await_read(worker: subprocess.Popen[bytes], path: Path, to_bytes: int) -> None:
    """Return once the worker has read `to_bytes` bytes of a file."""
    process = psutil.Process(worker.pid)
    while bytes_read(process, path.name) < to_bytes:
        assert worker.poll() is None


def received(worker: subprocess.Popen[bytes]) -> list[Frame]:
    """Return all frames that a worker sends until its end."""
    assert worker.stdout
    frames = frames_of(worker.stdout.read())
    assert worker.wait() == int(isinstance(frames[-1][0], Crashed))
    return frames


def read(original: Path) -> list[Frame]:
    """Return all frames that a worker sends for a complete trace."""
    with started(original) as worker:
        report(worker, Complete())
        return received(worker)


def peak(original: Path) -> tuple[int, Frame]:
    """Return the peak resident memory of a worker, in MB, and the last frame that the worker sends.

    A small process in between starts the worker, because a child's peak starts at that of its parent.
    """
    frames = call(task(original)) + frame_head(Complete())
    done = subprocess.run(
        [sys.executable, "-c", STARTER, frames.hex(), *command(Kind.INGEST)],
        check=True,
        capture_output=True,
        start_new_session=True,  # see `started`
    )
    return int(done.stderr.split()[-1]) // 1000, frames_of(done.stdout)[-1]


def error_of(frame: Frame) -> ErrorDocument:
    """Return the error in the frame that reports an unreadable trace."""
    message = frame[0]
    assert isinstance(message, Failed)
    assert message.in_input
    return message.error


def test_ingest_child_sends_progress_and_then_the_result(tmp_path: Path) -> None:
    shape = TraceShape(steps=20)

    *before, last = read(write_trace(tmp_path / "t", shape))

    assert before
    assert all(isinstance(message, Progressed) for message, _ in before)
    assert result_of(last)["counts"] == expected(shape).counts


def test_ingest_child_sends_the_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PK\x03\x04 a zip archive")

    error = error_of(read(tmp_path / "t")[-1])

    assert (error.code, error.facts["offset"]) == ("not_json", 0)


def test_ingest_child_sends_an_unexpected_error(tmp_path: Path) -> None:
    with started(tmp_path / "missing") as worker:
        crash, _ = received(worker)[-1]

    assert isinstance(crash, Crashed)
    assert "FileNotFoundError" in crash.error
    assert "FileNotFoundError" in crash.traceback


def test_ingest_child_ends_when_its_input_closes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t")
    with started(tmp_path / "t") as worker:
        end = os.open(tmp_path / "t", os.O_WRONLY)  # the child now reads the trace
        assert worker.poll() is None
        assert worker.stdin

        worker.stdin.close()

        assert worker.wait(timeout=PATIENCE_S) == 1
        os.close(end)


# -- a trace that is still received --------------------------------------------------------------------------------


def test_ingest_child_reads_what_is_received_and_waits_for_more(tmp_path: Path) -> None:
    shape = TraceShape(steps=20)
    whole = write_trace(tmp_path / "whole", shape).read_bytes()
    incoming, original = tmp_path / "incoming", tmp_path / "original"
    incoming.write_bytes(whole[:-100])
    with started(original, incoming) as worker:
        report(worker, Grown(len(whole) - 100))
        await_read(worker, incoming, len(whole) - 100)
        with incoming.open("ab") as file:
            file.write(whole[-100:])
        incoming.rename(original)
        report(worker, Complete())

        last = received(worker)[-1]

    assert result_of(last)["counts"] == expected(shape).counts
    assert (tmp_path / "original.columns").is_dir()


def test_ingest_child_finds_a_trace_that_is_kept_already(tmp_path: Path) -> None:
    original = write_trace(tmp_path / "original", TraceShape())
    with started(original, tmp_path / "incoming") as worker:
        report(worker, Grown(original.stat().st_size))
        report(worker, Complete())

        assert received(worker)[-1][0] == Done()


def test_ingest_child_makes_no_columns_of_an_incomplete_trace(tmp_path: Path) -> None:
    original = write_trace(tmp_path / "original", TraceShape())
    with started(original) as worker:
        report(worker, Grown(original.stat().st_size))
        await_read(worker, original, original.stat().st_size)
        assert worker.stdin

        worker.stdin.close()

        assert worker.wait(timeout=PATIENCE_S) == 1
    assert not (tmp_path / "original.columns").exists()


def test_ingest_child_sends_damage_before_the_rest_is_received(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PK\x03\x04 a zip archive")
    with started(tmp_path / "t") as worker:
        report(worker, Grown(18))

        assert error_of(received(worker)[-1]).code == "not_json"


# -- bounded -------------------------------------------------------------------------------------------------------


def test_ingest_child_reads_a_number_of_thousands_of_digits(tmp_path: Path) -> None:
    original = tmp_path / "digits.json"
    original.write_text('{"traceEvents":[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"args":{"n":%s}}]}' % ("9" * 50_000))
    assert result_of(read(original)[-1])["events"] == {"in": 1, "kept": 1, "refused": 0}


@pytest.mark.system
@pytest.mark.parametrize("bracket", [b"[", b'{"":'])
def test_million_open_brackets_are_refused_in_bounded_memory(tmp_path: Path, bracket: bytes) -> None:
    (tmp_path / "t").write_bytes(zlib.compress(b'{"traceEvents": [' + bracket * 1_000_000, wbits=31))

    megabytes, last = peak(tmp_path / "t")

    assert error_of(last).code == "truncated"
    assert megabytes < PEAK_MB


@pytest.mark.system
@pytest.mark.parametrize(
    "compress", ["gzip", *(pytest.param(compression, marks=pytest.mark.slow) for compression in ("none", "zstd"))]
)
def test_memory_of_an_ingest_child_does_not_grow_with_the_trace(tmp_path: Path, compress: Any) -> None:
    shape = sized(TraceShape(kernels=1000, stacks=True), 30_000_000)
    path = write_trace(tmp_path / "t", shape, compress=compress)

    megabytes, last = peak(path)

    assert result_of(last)["counts"] == expected(shape).counts
    assert megabytes < PEAK_MB


@pytest.mark.slow
def test_memory_of_an_ingest_child_is_the_same_for_a_tenfold_trace(tmp_path: Path) -> None:
    shape = sized(TraceShape(kernels=1000), 300_000_000)

    megabytes, last = peak(write_trace(tmp_path / "t", shape, compress="gzip"))

    assert result_of(last)["counts"] == expected(shape).counts
    assert megabytes < PEAK_MB


def test_foreign_file_is_read_while_it_is_unchanged(tmp_path: Path) -> None:
    original = write_trace(tmp_path.resolve() / "t.json", TraceShape())
    mark = mark_of(original.stat())

    with started(original, Path("nowhere"), mark) as worker:
        report(worker, Complete())
        assert received(worker)[-1][0] == Done()
    os.utime(original)
    with started(original, Path("nowhere"), mark) as worker:
        report(worker, Complete())
        assert error_of(received(worker)[-1]).code == "original_changed"


def test_foreign_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    original = write_trace(tmp_path.resolve() / "t.json", TraceShape())

    with started(original, Path("nowhere"), mark_of(original.stat())) as worker:
        report(worker, Grown(1000))
        await_read(worker, original, 1000)
        with original.open("ab") as file:
            file.write(b" ")
        report(worker, Complete())
        assert error_of(received(worker)[-1]).code == "original_changed"

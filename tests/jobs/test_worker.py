"""A worker is a process of its own: it tells in lines what it does, ends with its server, and its memory is bounded."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.store.external_files import mark_of
from tests.server import bytes_read
from tests.traces import TraceShape, expected, sized, write_trace

PEAK_MB = 1000
STARTER = """
import resource, subprocess, sys
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdin.write(b'{"complete":true}\\n')
worker.stdin.flush()
lines = worker.stdout.readlines()
worker.wait()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(lines[-1].decode())
"""


def command(original: Path, incoming: Path = Path("nowhere"), *marks: str) -> list[str]:
    paths = [str(incoming), str(original), f"{original}.columns"]
    return [sys.executable, "-m", "service.jobs.worker", *paths, "t.json", *marks]


def started(original: Path, incoming: Path = Path("nowhere"), *marks: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(original, incoming, *marks), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def tell(worker: subprocess.Popen[bytes], **news: object) -> None:
    assert worker.stdin
    worker.stdin.write(json.dumps(news).encode() + b"\n")
    worker.stdin.flush()


def await_read(worker: subprocess.Popen[bytes], path: Path, to_bytes: int) -> None:
    """Return once the worker has read so many bytes of a file."""
    process = psutil.Process(worker.pid)
    while bytes_read(process, path.name) < to_bytes:
        assert worker.poll() is None


def lines_of(worker: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """What a worker tells until its end."""
    assert worker.stdout
    lines = [json.loads(line) for line in worker.stdout]
    assert worker.wait() == 0
    return lines


def told(original: Path) -> list[dict[str, Any]]:
    """What a worker tells of a trace that is complete."""
    with started(original) as worker:
        tell(worker, complete=True)
        return lines_of(worker)


def peak(original: Path) -> tuple[int, dict[str, Any]]:
    """The peak of resident memory in MB of a worker, and what it told last.

    A process between the two starts it, for a child's peak begins with what its parent had.
    """
    done = subprocess.run(
        [sys.executable, "-c", STARTER, *command(original)], check=True, stdout=subprocess.PIPE, text=True
    )
    kilobytes, last = done.stdout.strip().split("\n")
    return int(kilobytes) // 1000, json.loads(last)


def test_it_tells_progress_and_then_the_result(tmp_path: Path) -> None:
    shape = TraceShape(steps=20)

    *before, last = told(write_trace(tmp_path / "t", shape))

    assert before
    assert all(list(line) == ["progress"] for line in before)
    assert last["result"]["counts"] == expected(shape).counts


def test_it_tells_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PK\x03\x04 a zip archive")

    error = told(tmp_path / "t")[-1]["error"]

    assert (error["code"], error["offset"]) == ("not_json", 0)


def test_it_tells_of_an_error_that_nobody_thought_of(tmp_path: Path) -> None:
    with started(tmp_path / "missing") as worker:
        failure = lines_of(worker)[-1]["failure"]

    assert failure["code"] == "internal"
    assert "FileNotFoundError" in failure["detail"]


def test_it_ends_when_its_input_closes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t")
    with started(tmp_path / "t") as worker:
        end = os.open(tmp_path / "t", os.O_WRONLY)  # it is in the middle of its work now
        assert worker.poll() is None
        assert worker.stdin

        worker.stdin.close()

        assert worker.wait(timeout=20) == 1
        os.close(end)


# -- a trace that is still received --------------------------------------------------------------------------------


def test_it_reads_what_is_there_and_waits_for_more(tmp_path: Path) -> None:
    shape = TraceShape(steps=20)
    whole = write_trace(tmp_path / "whole", shape).read_bytes()
    incoming, original = tmp_path / "incoming", tmp_path / "original"
    incoming.write_bytes(whole[:-100])
    with started(original, incoming) as worker:
        tell(worker, grown=len(whole) - 100)
        await_read(worker, incoming, len(whole) - 100)
        with incoming.open("ab") as file:
            file.write(whole[-100:])
        incoming.rename(original)
        tell(worker, complete=True)

        last = lines_of(worker)[-1]

    assert last["result"]["counts"] == expected(shape).counts
    assert (tmp_path / "original.columns").is_dir()


def test_its_trace_may_be_kept_before_it_looks(tmp_path: Path) -> None:
    original = write_trace(tmp_path / "original", TraceShape())
    with started(original, tmp_path / "incoming") as worker:
        tell(worker, grown=original.stat().st_size)
        tell(worker, complete=True)

        assert "result" in lines_of(worker)[-1]


def test_it_makes_nothing_of_a_trace_that_is_not_complete(tmp_path: Path) -> None:
    original = write_trace(tmp_path / "original", TraceShape())
    with started(original) as worker:
        tell(worker, grown=original.stat().st_size)
        await_read(worker, original, original.stat().st_size)
        assert worker.stdin

        worker.stdin.close()

        assert worker.wait(timeout=20) == 1
    assert not (tmp_path / "original.columns").exists()


def test_damage_is_told_before_the_rest_has_come(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PK\x03\x04 a zip archive")
    with started(tmp_path / "t") as worker:
        tell(worker, grown=18)

        assert lines_of(worker)[-1]["error"]["code"] == "not_json"


# -- bounded -------------------------------------------------------------------------------------------------------


def test_a_number_of_thousands_of_digits_is_read(tmp_path: Path) -> None:
    original = tmp_path / "digits.json"
    original.write_text('{"traceEvents":[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"args":{"n":%s}}]}' % ("9" * 50_000))
    assert told(original)[-1]["result"]["events"] == {"in": 1, "kept": 1, "refused": 0}


@pytest.mark.parametrize("bracket", [b"[", b'{"":'])
def test_brackets_that_stay_open_by_the_million_are_refused_in_bounded_memory(tmp_path: Path, bracket: bytes) -> None:
    (tmp_path / "t").write_bytes(zlib.compress(b'{"traceEvents": [' + bracket * 1_000_000, wbits=31))

    megabytes, last = peak(tmp_path / "t")

    assert last["error"]["code"] == "truncated"
    assert megabytes < PEAK_MB


@pytest.mark.parametrize("compress", ["gzip", *(pytest.param(one, marks=pytest.mark.slow) for one in ("none", "zstd"))])
def test_its_memory_does_not_grow_with_the_trace(tmp_path: Path, compress: Any) -> None:
    shape = sized(TraceShape(kernels=1000, stacks=True), 30_000_000)
    path = write_trace(tmp_path / "t", shape, compress=compress)

    megabytes, last = peak(path)

    assert last["result"]["counts"] == expected(shape).counts
    assert megabytes < PEAK_MB


@pytest.mark.slow
def test_its_memory_stays_as_it_is_with_a_trace_ten_times_as_large(tmp_path: Path) -> None:
    shape = sized(TraceShape(kernels=1000), 300_000_000)

    megabytes, last = peak(write_trace(tmp_path / "t", shape, compress="gzip"))

    assert last["result"]["counts"] == expected(shape).counts
    assert megabytes < PEAK_MB


def test_a_file_of_somebody_else_is_read_as_long_as_it_is_the_one_it_was(tmp_path: Path) -> None:
    original = write_trace(tmp_path.resolve() / "t.json", TraceShape())
    mark = mark_of(original.stat())

    with started(original, Path("nowhere"), mark) as worker:
        tell(worker, complete=True)
        assert "result" in lines_of(worker)[-1]
    os.utime(original)
    with started(original, Path("nowhere"), mark) as worker:
        tell(worker, complete=True)
        assert lines_of(worker)[-1]["error"]["code"] == "original_changed"


def test_a_file_of_somebody_else_that_changes_while_it_is_read_is_no_trace(tmp_path: Path) -> None:
    original = write_trace(tmp_path.resolve() / "t.json", TraceShape())

    with started(original, Path("nowhere"), mark_of(original.stat())) as worker:
        tell(worker, grown=1000)
        await_read(worker, original, 1000)
        with original.open("ab") as file:
            file.write(b" ")
        tell(worker, complete=True)
        assert lines_of(worker)[-1]["error"]["code"] == "original_changed"

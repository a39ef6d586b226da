"""A worker is a process of its own: it tells in lines what it does, ends with its server, and its memory is bounded."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from service.jobs.worker import MEMORY_MAX
from tests.traces import TraceShape, expected, sized, write_trace

STARTER = """
import resource, subprocess, sys
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
lines = worker.stdout.readlines()
worker.wait()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(lines[-1].decode())
"""


def command(original: Path, name: str = "t.json") -> list[str]:
    return [sys.executable, "-m", "service.jobs.worker", str(original), f"{original}.columns", name]


def started(original: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(original), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def told(original: Path) -> list[dict[str, Any]]:
    """The lines of a worker that runs to its end."""
    with started(original) as worker:
        assert worker.stdout
        lines = [json.loads(line) for line in worker.stdout]
        assert worker.wait() == 0
    return lines


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
    (tmp_path / "t").write_bytes(b'{"traceEvents": [NaN]}')

    error = told(tmp_path / "t")[-1]["error"]

    assert (error["code"], error["offset"]) == ("not_json", 17)


def test_it_tells_of_an_error_that_nobody_thought_of(tmp_path: Path) -> None:
    error = told(tmp_path / "missing")[-1]["error"]

    assert error["code"] == "internal"
    assert "FileNotFoundError" in error["detail"]


def test_it_ends_when_its_input_closes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t")
    with started(tmp_path / "t") as worker:
        end = os.open(tmp_path / "t", os.O_WRONLY)  # it is in the middle of its work now
        assert worker.poll() is None
        assert worker.stdin

        worker.stdin.close()

        assert worker.wait(timeout=20) == 1
        os.close(end)


def test_a_number_of_thousands_of_digits_is_read(tmp_path: Path) -> None:
    original = tmp_path / "digits.json"
    original.write_text('{"traceEvents":[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"args":{"n":%s}}]}' % ("9" * 50_000))
    assert told(original)[-1]["result"]["events"] == {"in": 1, "kept": 1, "refused": 0}


@pytest.mark.parametrize("bracket", [b"[", b'{"":'])
def test_brackets_that_stay_open_by_the_million_are_refused_in_bounded_memory(tmp_path: Path, bracket: bytes) -> None:
    (tmp_path / "t").write_bytes(zlib.compress(b'{"traceEvents": [' + bracket * 1_000_000, wbits=31))

    megabytes, last = peak(tmp_path / "t")

    assert last["error"]["code"] == "not_a_trace"
    assert "memory" in last["error"]["detail"]
    assert megabytes < MEMORY_MAX >> 20


@pytest.mark.parametrize("compress", ["none", "gzip", "zstd"])
def test_its_memory_does_not_grow_with_the_trace(tmp_path: Path, compress: Any) -> None:
    shape = sized(TraceShape(kernels=1000, stacks=True), 30_000_000)
    path = write_trace(tmp_path / "t", shape, compress=compress)

    megabytes, last = peak(path)

    assert last["result"]["counts"] == expected(shape).counts
    assert megabytes < 100


@pytest.mark.slow
def test_its_memory_stays_as_it_is_with_a_trace_ten_times_as_large(tmp_path: Path) -> None:
    shape = sized(TraceShape(kernels=1000), 300_000_000)

    megabytes, last = peak(write_trace(tmp_path / "t", shape, compress="gzip"))

    assert last["result"]["counts"] == expected(shape).counts
    assert megabytes < 100

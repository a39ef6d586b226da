"""A window of a rank is what `tracedock download` cuts out of the file, read from a few ranges of the dataset."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.fleet.dataset import COLUMNS, Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.record import Record
from service.fleet.sources import find_sources
from service.fleet.windows import WindowRequest, trace_of_rank, window_of
from service.fleet.workers.here import Here
from service.store.folder import EVENTS, LISTS
from service.store.locations.location import Location, location_of
from service.store.parts import Parts
from service.trace.errors import BadFleetRequest, LocationUnavailable, SourceChanged, UnknownLocation
from service.trace.selection import Selection, Window
from tests.store.counting_proxy import counting_proxy
from tests.store.locations.conftest import bucket, place, s3
from tests.store.s3 import S3Server, program, until_it_has_room
from tests.traces import TraceShape, sized, write_trace

__all__ = ["bucket", "place", "s3"]

RANKS, STEPS = 2, 60
SHAPE = TraceShape(world_size=RANKS, steps=STEPS, kernels=100, stacks=True)
BYTES_MAX = 0.05
"""Largest share of a rank's files that a window of 1 % may read."""
LARGE_MB = 700
"""Size of a trace of a hundred row groups, for which the bound holds with room."""


def made(folder: Path, shapes: dict[str, TraceShape]) -> Path:
    """Write traces into the folder of a run, and ingest them into a dataset beside it."""
    run = folder / "run-7"
    run.mkdir()
    for name, shape in shapes.items():
        write_trace(run / name, shape)
    dataset = Dataset.create(str(folder / "dataset"))
    progress = ingest_sources(dataset, find_sources([str(run)], None, dataset.location.url), Here())
    assert (progress.done, progress.failed) == (len(shapes), 0)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of a run in `run-7`, of several row groups each, and their dataset in `dataset`."""
    shapes = {f"rank{rank}.json": TraceShape(**{**vars(SHAPE), "rank": rank, "seed": rank}) for rank in range(RANKS)}
    return made(tmp_path_factory.mktemp("windows"), shapes)


def copied(dataset: Path, to: Location) -> Dataset:
    """Copy a dataset into a location."""
    for path in sorted(dataset.rglob("*")):
        if path.is_file() and ".making" not in path.parts:
            to.write(f"dataset/{path.relative_to(dataset).as_posix()}", path.read_bytes())
    return Dataset.open(f"{to.url}/dataset")


@pytest.fixture
def dataset(run: Path, place: Location) -> Dataset:
    """The dataset in a folder, and in a bucket."""
    return copied(run / "dataset", place)


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["--url", "http://127.0.0.1:9", *map(str, arguments)], prog_name="tracedock")


def middle(dataset: Dataset, record: Record, start: float = 0.5, share: float = 0.01) -> Selection:
    """Return a window of a share of a trace's time."""
    assert record.start_ns is not None
    assert record.end_ns is not None
    span = record.end_ns - record.start_ns
    first = record.start_ns + int(start * span)
    return Selection(window=Window(start_ns=first, end_ns=first + int(share * span)))


@pytest.mark.parametrize(
    "options",
    [
        ["--window", "20ms..21ms"],
        ["--window", "0s..1us"],
        ["--window", "20ms..21ms", "--straddle", "clip"],
        ["--steps", "7"],
        ["--steps", "3,30-32", "--streams", "0/7"],
        ["--streams", "0/20", "--categories", "kernel"],
        ["--names", "*gemm*", "--min-dur", "10us"],
        ["--window", "20ms..21ms", "--no-launches", "--no-flows"],
    ],
    ids=" ".join,
)
def test_window_is_what_download_cuts_out_of_the_file(
    run: Path, dataset: Dataset, tmp_path: Path, options: list[str]
) -> None:
    ours, oracle = tmp_path / "ours.json", run / f"{' '.join(options).replace('/', ' ')}.json"
    shown = cli("fleet", "window", dataset.location.url, "--rank", 1, *options, "-o", ours)
    assert shown.exit_code == 0, shown.stderr
    if not oracle.exists():
        assert cli("download", run / "run-7" / "rank1.json", *options, "-o", oracle).exit_code == 0
    assert ours.read_bytes() == oracle.read_bytes()
    assert json.loads(ours.read_bytes())["traceEvents"]


def test_command_names_its_file_and_what_it_read(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["fleet", "window", run / "dataset", "--rank", 1, "--steps", 7]
    shown = cli(*arguments)
    assert shown.stdout == "rank1.cut.pt.trace.json.gz\n"
    assert " read, of " in shown.stderr
    assert cli("download", run / "run-7" / "rank1.json", "--steps", 7, "-o", "oracle.json.gz").exit_code == 0
    assert Path("rank1.cut.pt.trace.json.gz").read_bytes() == Path("oracle.json.gz").read_bytes()
    assert "--force replaces it" in cli(*arguments).stderr
    document = json.loads(cli(*arguments, "--force", "--json").stdout)
    [trace] = [record.trace for record in Dataset.open(str(run / "dataset")).records().values() if record.rank == 1]
    files = [run / "dataset" / "traces" / trace / name for name in COLUMNS]
    assert document["size_bytes"] == sum(path.stat().st_size for path in files if path.exists())
    assert 0 < document["read_bytes"] < document["size_bytes"]
    assert (document["file"], document["rank"]) == ("rank1.cut.pt.trace.json.gz", 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--rank", "7", "--steps", "7"], "The run run-7 has no trace of rank 7. It has ranks 0-1."),
        (["--steps", "7"], "Name a rank. It has ranks 0-1."),
        (["--rank", "0", "--run", "run-8", "--steps", "7"], "There is no run 'run-8'. Done are traces of run-7."),
        (["--rank", "0", "--file", "x.json", "--steps", "7"], "no file 'x.json' among the traces. There are rank0"),
        (["--rank", "0", "--steps", "700"], "The trace has no step '700'"),
        (["--rank", "0", "--streams", "0/9"], "The trace has no stream '0/9'; it has 0/20, 0/7."),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_does_not_exist_is_refused_with_what_does(
    run: Path, tmp_path: Path, options: list[str], reason: str
) -> None:
    refused = cli("fleet", "window", run / "dataset", *options, "-o", tmp_path / "cut.json")
    assert refused.exit_code == 1
    assert reason in refused.stderr
    assert not [*tmp_path.iterdir()]


def test_whole_trace_is_no_window(run: Path) -> None:
    refused = cli("fleet", "window", run / "dataset", "--rank", 0)
    assert (refused.exit_code, "name a part of the trace" in refused.stderr) == (2, True)


def test_one_of_several_traces_of_a_rank_is_named_by_its_file() -> None:
    records = [
        Record(key=name, run="r", source=name, name=name, size_bytes=1, state="done", rank=0, is_memory_snapshot=memory)
        for name, memory in (("first.json", False), ("second.json", False), ("memory.pickle", True))
    ]
    with pytest.raises(BadFleetRequest, match=r"the rank has several traces: first.json, second.json\."):
        trace_of_rank(records, 0, None)
    assert trace_of_rank(records, 0, "memory.pickle").name == "memory.pickle"
    assert trace_of_rank(records[1:], None, None).name == "second.json"


def test_trace_that_changes_meanwhile_is_refused(dataset: Dataset) -> None:
    [record, _] = dataset.records().values()
    name = f"traces/{record.trace}/{EVENTS}"
    content = dataset.location.read(name)
    assert content is not None
    with window_of(dataset, WindowRequest(middle(dataset, record), rank=record.rank)) as cut:
        dataset.location.write(name, content + b"PAR1")
        with pytest.raises(SourceChanged, match=f"{EVENTS} was changed while it was read"):
            b"".join(cut.chunks)
    dataset.location.write(name, content[:-1000])
    with window_of(dataset, WindowRequest(middle(dataset, record), rank=record.rank)) as cut:
        dataset.location.remove(name)
        with pytest.raises(UnknownLocation, match=f"There is no .*{EVENTS}"):
            b"".join(cut.chunks)


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(program() is None, reason="weed is not installed: run .ci/programs")
def test_killed_server_is_an_error_and_leaves_no_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3").mkdir()
    server = S3Server(tmp_path / "s3")
    server.start()
    try:
        for name, value in (server.environment | {"TRACEDOCK_BUCKET_RETRY_S": "1"}).items():
            monkeypatch.setenv(name, value)
        bucket = location_of("s3://traces/run-7")
        until_it_has_room(bucket)
        dataset = copied(run / "dataset", bucket)
        [record, _] = dataset.records().values()
        with window_of(dataset, WindowRequest(middle(dataset, record), rank=record.rank)) as cut:
            server.kill()
            with pytest.raises(LocationUnavailable, match=r"s3://traces/run-7/dataset/.* can't be used: "):
                b"".join(cut.chunks)
        shown = cli("fleet", "window", dataset.location.url, "--steps", 7, "--rank", 0, "-o", tmp_path / "cut.json")
        assert shown.exit_code == 1
        assert not (tmp_path / "cut.json").exists()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a large trace."""
    folder = made(tmp_path_factory.mktemp("large"), {"rank0.json": sized(TraceShape(kernels=1000), LARGE_MB * 10**6)})
    shutil.rmtree(folder / "run-7")
    return folder / "dataset"


@pytest.mark.system
@pytest.mark.parametrize("start", [0.0, 0.37, 0.5, 0.99])
@pytest.mark.parametrize("streams", [None, ["0/20"]])
def test_window_of_a_hundredth_reads_at_most_a_twentieth(large: Path, start: float, streams: list[str] | None) -> None:
    dataset = Dataset.open(str(large))
    [record] = dataset.records().values()
    selection = middle(dataset, record, start).model_copy(update={"streams": streams})
    fresh = Dataset.open(str(large))
    with window_of(fresh, WindowRequest(selection)) as cut:
        assert b"".join(cut.chunks)
    assert fresh.location.meter.size <= BYTES_MAX * cut.size_bytes


def test_dataset_has_several_parts(dataset: Dataset) -> None:
    for record in dataset.records().values():
        with dataset.ranged(record.trace) as columns:
            assert len(Parts(columns / EVENTS)) >= 3


@pytest.mark.system
def test_count_is_what_the_store_sends(
    run: Path, bucket: Location, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(run / "dataset", bucket)
    with counting_proxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        remote = Dataset.open(dataset.location.url)
        with window_of(remote, WindowRequest(Selection(steps=[7]), rank=0)) as cut:
            assert b"".join(cut.chunks)
        headers = proxy.received - remote.location.meter.size
        assert 0 < headers < 4096 * proxy.responses
        assert remote.location.meter.size > proxy.received / 2


def test_lists_of_a_trace_of_many_steps_are_compressed(tmp_path: Path) -> None:
    folder = made(tmp_path, {"rank0.json": TraceShape(steps=5000, kernels=1)})
    dataset = Dataset.open(str(folder / "dataset"))
    [record] = dataset.records().values()
    [lists] = [entry.size for entry in dataset.location.entries(f"traces/{record.trace}/{LISTS}")]
    assert lists < 5000 * 20, "a step as JSON has a hundred bytes"
    with window_of(dataset, WindowRequest(Selection(steps=[4900]))) as cut:
        assert b"ProfilerStep#4900" in b"".join(cut.chunks)

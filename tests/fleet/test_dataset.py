"""A dataset has each trace once, however often it is made; its facts are what the analyses say."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.dataset import COLUMNS, Dataset, table_name
from service.fleet.facts import TABLES
from service.fleet.merging import merge_facts
from service.fleet.progress import DatasetProgress
from service.fleet.record import Record, as_table
from service.fleet.sources import Source, find_sources
from service.fleet.tasks import IngestSource
from service.streaming.zstandard import zstd
from service.trace.cycles import cycles_of
from service.trace.errors import BadDataset, IngestError, NotJson, SourceChanged, UnknownLocation
from tests.traces import TraceShape, write_trace

RANKS = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of a run."""
    folder = tmp_path_factory.mktemp("traces") / "run-7"
    folder.mkdir()
    for rank in range(RANKS):
        shape = TraceShape(rank=rank, world_size=RANKS, steps=2, seed=rank)
        write_trace(folder / f"rank{rank}.pt.trace.json.gz", shape, compress="gzip")
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(str(tmp_path / "dataset"))


def sources_of(dataset: Dataset, *texts: Path | str) -> list[Source]:
    return find_sources([str(text) for text in texts], None, dataset.location.url)


def ingested(dataset: Dataset, sources: Sequence[Source]) -> list[Record]:
    return [IngestSource(dataset.location.url, source).run() for source in sources]


def merged(dataset: Dataset, records: Sequence[Record]) -> str:
    return merge_facts(dataset, records, ())


def files(dataset: Dataset, below: str) -> list[str]:
    return [entry.name for entry in dataset.location.entries(below)]


# -- sources ----------------------------------------------------------------------------------------------------------


def test_sources_are_found_by_file_folder_and_pattern(run: Path, dataset: Dataset) -> None:
    names = [f"rank{rank}.pt.trace.json.gz" for rank in range(RANKS)]
    (run / "notes.txt").touch()
    for text, found in [
        (run, names),
        (run.parent, names),
        (run / "*.json.gz", names),
        (run.parent / "**" / "rank[12]*", names[1:]),
        (run / names[0], names[:1]),
    ]:
        assert [source.name for source in sources_of(dataset, text)] == found
    assert [source.name for source in sources_of(dataset, run, run / names[0])] == names, "none is found twice"


def test_run_is_named_by_the_folder_unless_it_is_given(run: Path, dataset: Dataset) -> None:
    assert {source.run for source in sources_of(dataset, run)} == {"run-7"}
    assert {source.run for source in sources_of(dataset, run / "*.gz")} == {"run-7"}
    assert {source.run for source in sources_of(dataset, run / "rank0.pt.trace.json.gz")} == {"run-7"}
    assert {source.run for source in find_sources([str(run)], "mine", "/nowhere")} == {"mine"}


def test_files_of_the_dataset_are_no_sources(dataset: Dataset, run: Path, tmp_path: Path) -> None:
    ingested(dataset, sources_of(dataset, run)[:1])
    with pytest.raises(UnknownLocation, match="there is no trace here"):
        sources_of(dataset, tmp_path / "nothing*")
    assert sources_of(dataset, tmp_path) == []


# -- traces -----------------------------------------------------------------------------------------------------------


def test_each_source_becomes_a_trace_with_a_record(dataset: Dataset, run: Path) -> None:
    records = ingested(dataset, sources_of(dataset, run))
    assert [(record.state, record.rank, record.world_size, record.steps) for record in records] == [
        ("done", rank, RANKS, 2) for rank in range(RANKS)
    ]
    assert dataset.records() == {record.key: record for record in records}
    for record in records:
        assert dataset.summary(record.trace).kept_events == record.events
        assert {f"traces/{record.trace}/{name}" for name in COLUMNS[:2]} <= {*files(dataset, "traces")}
    assert not any(name.startswith(".") for name in files(dataset, ""))


def test_what_is_made_twice_at_a_time_is_there_once(dataset: Dataset, run: Path) -> None:
    [source] = sources_of(dataset, run / "rank0*")
    with ThreadPoolExecutor(3) as threads:
        records = [*threads.map(lambda _: ingested(dataset, [source])[0], range(3))]
    assert len({record.trace for record in records}) == 1
    assert len(dataset.records()) == 1
    assert Counter(name.split("/")[1] for name in files(dataset, "traces")).keys() == {records[0].trace}
    assert not [*(Path(dataset.location.url) / ".making").iterdir()]


def test_same_bytes_under_the_name_of_another_rank_are_another_trace(dataset: Dataset, tmp_path: Path) -> None:
    events = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]}'
    for name in ("rank0.json", "rank1.json", "copy.json"):
        (tmp_path / name).write_text(events)
    records = ingested(dataset, sources_of(dataset, tmp_path / "*.json"))
    assert [record.rank for record in records] == [None, 0, 1]
    assert len({record.trace for record in records}) == 3


def test_file_that_is_no_trace_is_an_error_and_leaves_nothing(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("no trace")
    with pytest.raises(IngestError) as failed:
        ingested(dataset, sources_of(dataset, tmp_path / "broken.json"))
    assert isinstance(failed.value, NotJson)
    assert files(dataset, "traces") == files(dataset, "sources") == []
    assert not [*(Path(dataset.location.url) / ".making").iterdir()]


def test_file_that_was_replaced_since_it_was_listed_is_an_error(dataset: Dataset, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "rank0.json", TraceShape())
    sources = sources_of(dataset, path)
    path.write_text(path.read_text() + "\n")
    with pytest.raises(SourceChanged):
        ingested(dataset, sources)
    assert files(dataset, "traces") == []


# -- records ----------------------------------------------------------------------------------------------------------


def test_failure_that_is_reported_late_does_not_replace_success(dataset: Dataset, run: Path) -> None:
    [source] = sources_of(dataset, run / "rank0*")
    failed = Record.failed(source, NotJson("It is no trace."), attempts=2)
    dataset.record(failed)
    assert dataset.records() == {source.key: failed}
    assert failed.in_input
    [done] = ingested(dataset, [source])
    dataset.record(failed)
    assert dataset.records() == {source.key: done}
    assert Record.from_json(done.as_json()) == done
    assert as_table([done])["rank"].to_pylist() == [0]


def test_records_tell_the_cycles_of_a_run(dataset: Dataset, tmp_path: Path) -> None:
    for cycle in range(2):
        for rank in range(2):
            shape = TraceShape(rank=rank, world_size=2, steps=2, first_step=3 + 10 * cycle, seed=rank + 10 * cycle)
            write_trace(tmp_path / f"rank{rank}.{cycle}.json", shape)
    records = ingested(dataset, sources_of(dataset, tmp_path / "*.json"))
    by_records = cycles_of([record.as_summary() for record in records])
    assert by_records == cycles_of([dataset.summary(record.trace) for record in records])
    assert by_records.numbers == [0, 1, 0, 1]


def test_dataset_of_another_version_and_no_dataset_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    assert Dataset.open(dataset.location.url).records() == {}
    manifest = Path(dataset.location.url) / "dataset.json"
    for content in ('{"kind": "tracedock dataset", "version": 99}', "{"):
        manifest.write_text(content)
        with pytest.raises(BadDataset):
            Dataset.create(dataset.location.url)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDataset, match="has no dataset"):
        Dataset.open(str(tmp_path / "empty"))


# -- facts ------------------------------------------------------------------------------------------------------------


def test_facts_are_what_the_analyses_say(dataset: Dataset, run: Path, tmp_path: Path) -> None:
    records = ingested(dataset, sources_of(dataset, run))
    part = merged(dataset, records)
    readings = ReadingCache(tmp_path / "spill")
    try:
        for table, name, analysis, columns in [
            ("steps", "steps", "steps", ["rank", "step", "start_ns", "total_ns", "kernel_ns", "other_ns"]),
            ("devices", "breakdown", "temporal_breakdown", ["rank", "device", "busy_ns", "exposed_comm_ns"]),
        ]:
            traces = [
                AnalysisInput(Path(dataset.location.url, "traces", record.trace), dataset.summary(record.trace))
                for record in records
            ]
            question = question_of(analysis)
            answer = answer_question(question, parameters_of(question, {}), traces, readings).tables[name]
            facts = pq.read_table(Path(dataset.location.url) / table_name(table, part))
            assert facts.schema == TABLES[table]
            assert facts.select(columns).to_pylist() == answer.select(columns).to_pylist()
            assert len(facts)
    finally:
        readings.close()


def test_kernels_of_the_facts_add_up_to_the_work_of_the_file(dataset: Dataset, run: Path) -> None:
    [source] = sources_of(dataset, run / "rank0*")
    [record] = ingested(dataset, [source])
    kernels = dataset.facts(record.trace)["kernels"]
    with gzip.open(run / "rank0.pt.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    work = Counter(event["name"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    assert dict(zip(kernels["name"].to_pylist(), kernels["count"].to_pylist(), strict=True)) == work


def test_part_has_its_records_and_each_trace_once(dataset: Dataset, run: Path) -> None:
    records = ingested(dataset, sources_of(dataset, run))
    first = merged(dataset, records[:2])
    again = merged(dataset, records[:2])
    assert first == again, "a merge that is repeated writes the same part"
    merged(dataset, records[1:])
    parts = dataset.parts()
    assert sorted(record.key for part in parts for record in part.records) == sorted(record.key for record in records)
    assert sorted(trace for part in parts for trace in part.traces) == sorted(record.trace for record in records)
    assert dataset.unmerged(record.key for part in parts for record in part.records) == {}


def test_part_of_an_earlier_version_is_read(dataset: Dataset, run: Path) -> None:
    records = ingested(dataset, sources_of(dataset, run))
    merged(dataset, records)
    (part,) = dataset.parts()
    name = f"parts/{part.name}.json"
    content = dataset.location.read(f"{name}.zst")
    assert content is not None
    dataset.location.write(name, zstd.decompress(content))
    dataset.location.remove(f"{name}.zst")
    assert dataset.parts() == [part]


DAMAGES = {
    "empty": b"",
    "cut": b'{"key": "a", "records": [{"key"',
    "other type": b"[1, 2]",
    "missing fields": b"{}",
    "compressed and cut": zstd.compress(b'{"records": [], "traces": []}' * 99)[:-5],
    "null bytes": bytes(64),
    "no text": b"\xff\xfe{}",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", ["sources/0000.json", "parts/0000.json.zst", "ingests/0000.json"])
def test_damaged_document_is_an_error_that_names_it(dataset: Dataset, name: str, damage: bytes) -> None:
    dataset.location.write(name, damage)
    with pytest.raises(BadDataset, match=f"{dataset.location.url}/{name} is damaged: .*ingest its sources again"):
        DatasetProgress(dataset).look()
    if not name.startswith("ingests/"):
        with pytest.raises(BadDataset, match=f"{dataset.location.url}/{name} is damaged"):
            dataset.records()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_summary_or_facts_of_a_trace_are_errors_that_name_them(
    run: Path, dataset: Dataset, damage: bytes
) -> None:
    [record] = ingested(dataset, sources_of(dataset, run / "rank0.pt.trace.json.gz"))
    for name, read in (("summary.json", dataset.summary), ("facts.arrow", dataset.facts)):
        if (name, damage) == ("summary.json", b"{}"):  # all of its fields have defaults
            continue
        dataset.location.write(f"traces/{record.trace}/{name}", damage)
        with pytest.raises(BadDataset, match=f"/traces/{record.trace}/{name} is damaged"):
            read(record.trace)


def test_documents_of_a_later_version_may_have_further_fields(dataset: Dataset) -> None:
    record = Record(key="a", run="r", source="/r/a.json", name="a.json", size_bytes=1, state="failed")
    later = {**json.loads(record.as_json()), "weather": "fine"}
    dataset.location.write("sources/a.json", json.dumps(later).encode())
    assert dataset.records() == {"a": record}

"""A dataset in a bucket, with its sources in the bucket, is what one in folders is."""

from pathlib import Path

import pytest

from service.analysis.names import COMPARISONS, NAMES, OF_SNAPSHOTS
from service.fleet.dataset import Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.sources import find_sources
from service.fleet.workers.here import Here
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.start import workers_of
from service.store.locations.location import Location
from tests.fleet.test_asking import asked
from tests.traces import TraceShape, write_trace

RANKS = 3
pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def test_bucket_and_folder_give_the_same_answers(bucket: Location, tmp_path: Path) -> None:
    run = tmp_path / "run-7"
    run.mkdir()
    for rank in range(RANKS):
        shape = TraceShape(rank=rank, world_size=RANKS, steps=2, seed=rank)
        path = write_trace(run / f"rank{rank}.json.gz", shape, compress="gzip")
        bucket.write(f"run-7/{path.name}", path.read_bytes())
    folder = Dataset.create(str(tmp_path / "dataset"))
    remote = Dataset.create(f"{bucket.url}/dataset")
    ingest_sources(folder, find_sources([str(run)], None, folder.location.url), Here())
    sources = find_sources([f"{bucket.url}/run-7"], None, remote.location.url)
    with workers_of(WorkersRequest(mode="local", count=2, patience_s=60)) as workers:
        progress = ingest_sources(remote, sources, workers)
        assert (progress.done, progress.failed) == (RANKS, 0)
        for name in NAMES:
            if name not in COMPARISONS | OF_SNAPSHOTS:
                found = asked(remote, name, "run-7", None, None, workers)
                assert found == asked(folder, name, "run-7", None, None, Here()), name
    files = [sorted(entry.name for entry in each.location.entries("traces")) for each in (folder, remote)]
    assert files[0] == files[1]

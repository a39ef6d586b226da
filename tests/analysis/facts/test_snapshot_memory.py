"""Blocks of a snapshot's devices, compared with a plain model at every change; and the tables that are asked for."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from service.analysis.answers import answer_question
from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import scope_of
from service.analysis.facts.snapshot_memory import SnapshotMemory, snapshot_memory_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.formats.memory_snapshot.events import CATEGORY
from service.store.folder import MEMORY
from service.trace.errors import ExportFailed
from service.trace.selection import Selection
from tests.cutting.test_cut import ingested
from tests.formats.memory_snapshot.test_replay import STEPS, Allocator
from tests.snapshots import SMALL, pickled, snapshot

ALL_CHANGES = Selection(categories=[CATEGORY])
CHANGES = ("alloc", "free_completed")


def memory_of(source: Source, selection: Selection | None = None) -> SnapshotMemory:
    """Return the memory of a snapshot, whose columns are read after the scope has been closed."""
    database = RankDatabase(source.columns, source.summary, selection, spill=source.columns / "spill", threads=2)
    with closing(database), scope_of(database) as scope:
        return snapshot_memory_of(scope)


@pytest.fixture
def small(tmp_path: Path) -> Source:
    return ingested(pickled(SMALL), tmp_path / "small", "small.pickle")


@given(first=STEPS, second=STEPS)
def test_live_blocks_of_each_device_equal_a_plain_model_at_every_change(
    tmp_path_factory: pytest.TempPathFactory, first: Sequence[Any], second: Sequence[Any]
) -> None:
    models = [Allocator(), Allocator()]
    for model, steps in zip(models, (first, second), strict=True):
        for step in [(0, 0, 1), *steps]:  # a selection must not be empty
            model.step(*step)
    ends = [model.snapshot(0) for model in models]
    segments = [{**part, "device": device} for device, end in enumerate(ends) for part in end["segments"]]
    traces = [end["device_traces"][0] for end in ends]
    source = ingested(
        pickled(snapshot(*traces, segments=segments)), tmp_path_factory.mktemp("memory") / "any", "any.pickle"
    )

    for memory in (memory_of(source), memory_of(source, ALL_CHANGES)):
        for number, device in memory.devices.items():
            states = [
                state
                for entry, state in zip(traces[number], models[number].states[1:], strict=True)
                if entry["action"] in CHANGES
            ]
            for change, (active, _, reserved, blocks) in enumerate(states):
                live = np.flatnonzero(device.live(change))
                held = zip(device.addresses(live).tolist(), device.sizes[live].tolist(), strict=True)
                assert {*held} == blocks
                assert (device.active_after(change), int(device.reserved[change])) == (active, reserved)
            assert len(device.at) == len(states)


@pytest.mark.parametrize("name", QUESTIONS["memory_snapshot"].tables)
def test_table_that_is_asked_for_alone_equals_that_of_the_whole_answer(
    small: Source, tmp_path: Path, name: str
) -> None:
    question = QUESTIONS["memory_snapshot"]
    traces = [AnalysisInput(small.columns, small.summary, name=small.name)]
    parameters = parameters_of(question, {"at_ns": 3000})
    with closing(ReadingCache(tmp_path / "spill")) as readings:
        whole = answer_question(question, parameters, traces, readings)
    with closing(ReadingCache(tmp_path / "spill")) as readings:
        part = answer_question(question, parameters, traces, readings, [name])

    assert part.tables[name].equals(whole.tables[name])
    assert part.notes == whole.notes
    assert part.tables.keys() == {name, "step_sources"}


def test_file_that_is_gone_is_named(small: Source) -> None:
    memory = memory_of(small)
    (small.columns / MEMORY).unlink()

    with pytest.raises(ExportFailed, match=f"{MEMORY} can't be read"):
        _ = memory.devices[0].reserved

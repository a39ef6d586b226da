"""The engine's time 0 is the start of the first event, or of the largest set of events within the exact range."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from service.rendering.document import render
from service.rendering.render_report import RenderReport
from service.rendering.time_base import SPAN_MAX, time_base
from service.store.folder import EVENTS
from service.store.parts import Parts
from tests.cutting.test_cut import ingested
from tests.rendering.fuchsia.decoded import Decoder
from tests.rendering.loads import SLICES, load

EPOCH = 1_735_689_600_000_000_000
HOUR = 3_600_000_000_000
LAST = 999_999_999_999_999_999  # the largest time with 15 digits before the point


def document(times: list[int]) -> str:
    events = (f'{{"ph":"X","name":"{at}","pid":1,"tid":1,"ts":{at // 1000}.{at % 1000:03},"dur":1}}' for at in times)
    return f'{{"traceEvents":[{",".join(events)}]}}'


@contextmanager
def parts_of(times: list[int]) -> Iterator[Parts]:
    with TemporaryDirectory() as folder:
        parts = Parts(ingested(document(times), Path(folder) / "trace").columns / EVENTS)
        yield parts
        parts.close()


@pytest.mark.parametrize(
    ("times", "base"),
    [
        ([], 0),
        ([5], 5),
        ([7_000, 5_001, 9_000], 5_001),
        ([EPOCH + 1, EPOCH + 10 * HOUR], EPOCH + 1),
        ([0, EPOCH, EPOCH + 1], EPOCH),
        ([0, 1, 2, EPOCH, EPOCH + 1], 0),
        ([0, 0, EPOCH, EPOCH], 0),
        ([3, 3 + SPAN_MAX], 3),
        ([3, 4 + SPAN_MAX, 5 + SPAN_MAX], 4 + SPAN_MAX),
        ([LAST - 1, LAST, 0], LAST - 1),
    ],
)
def test_base_is_the_start_of_the_largest_set_of_near_events(times: list[int], base: int) -> None:
    with parts_of(times) as parts:
        assert time_base(parts) == base


@pytest.mark.parametrize(
    ("times", "moved_count"),
    [
        ([EPOCH + step for step in (0, 1, 2, HOUR, 50 * 24 * HOUR)], 0),
        ([0] * 3 + [EPOCH + step for step in (0, 1, 999)], 3),
        ([0] * 2 + [EPOCH + step for step in (0, 1, 999)] + [EPOCH + 80 * 24 * HOUR], 3),
        ([LAST, LAST - 1, 0], 1),
    ],
)
def test_times_of_several_clocks_are_exact_except_for_those_reported(
    times: list[int], moved_count: int, tmp_path: Path
) -> None:
    result = load(ingested(document(times), tmp_path / "trace"), SLICES)
    assert result.report.complete
    assert [note.count for note in result.report.notes if note.code == "moved"] == [moved_count] * bool(moved_count)
    assert sum(int(str(name)) != start for _, _, start, _, name in result.answers[0]) == moved_count
    assert {duration for *_, duration, _ in result.answers[0]} == {1000}


def test_durations_beyond_the_range_end_at_its_edge(tmp_path: Path) -> None:
    members = '"ph":"X","pid":1,"tid":1'
    text = f'[{{{members},"ts":1,"dur":900000000000000}},{{{members},"ts":2,"dur":-1}}]'
    rendered = RenderReport()
    trace = ingested(text, tmp_path / "trace")
    records = Decoder(b"".join(render(trace.columns, trace.summary, rendered))).events()
    assert [record.last - record.ts for record in records if record.last] == [4_503_599_627_370_496, 0]
    assert (rendered.moved, rendered.negative) == (1, 1)

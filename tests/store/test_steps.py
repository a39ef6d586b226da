"""Annotations of a step that overlap, on several threads, count as one step."""

import pytest

from service.store.steps import merged_steps
from service.trace.summary import Step


def step(number: int, start: int, end: int) -> Step:
    return {"name": f"ProfilerStep#{number}", "number": number, "start_ns": start, "end_ns": end, "pid": 1, "tid": 1}


@pytest.mark.parametrize(
    ("steps", "merged"),
    [
        ([], []),
        ([step(2, 30, 40), step(1, 10, 20)], [(1, 10, 20), (2, 30, 40)]),
        ([step(1, 10, 20), step(1, 15, 25), step(2, 30, 40)], [(1, 10, 25), (2, 30, 40)]),
        ([step(1, 10, 20), step(1, 30, 40)], [(1, 10, 20), (1, 30, 40)]),
    ],
)
def test_steps_are_merged_into_contiguous_columns(steps: list[Step], merged: list[tuple[int, int, int]]) -> None:
    columns = merged_steps(steps)

    assert [*zip(*(column.tolist() for column in columns), strict=True)] == merged
    assert all(column.flags.c_contiguous for column in columns)  # compiled code is loaded ahead for no others

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, cast, get_type_hints

import numpy as np
import pytest
from tracedock import Selection
from tracedock.messages import chosen
from tracedock.selection import Criteria

from service.trace.selection import Selection as ServerSelection
from service.trace.selection_fields import FIELDS, SelectionField, ValueKind, nested
from tests.client.conftest import Driven
from tests.conftest import DATA

DECLARED = [field for field in FIELDS if field.kind is not ValueKind.SPAN]  # a span is two fields in one option
VALUES: dict[ValueKind, Any] = {
    ValueKind.INTEGERS: [3, -(2**62)],
    ValueKind.IDS: [7, "python"],
    ValueKind.WORDS: ["0/7", ""],
    ValueKind.NAMES: ["nccl*", "re:a,b"],
    ValueKind.NANOSECONDS: 2**62,
    ValueKind.TIMESTAMP: 2**62,
    ValueKind.NAME: "step",
    ValueKind.SWITCH: True,
    ValueKind.OMISSION: False,
}


def value_of(field: SelectionField) -> Any:
    return field.choices[-1] if field.kind is ValueKind.CHOICE else VALUES[field.kind]


def test_selection_has_exactly_the_fields_that_the_server_declares() -> None:
    assert [field.name for field in fields(Selection)] == [field.name for field in DECLARED]
    assert list(Criteria.__annotations__) == [field.name for field in DECLARED]
    assert get_type_hints(Criteria) == get_type_hints(Selection)


@pytest.mark.parametrize("field", DECLARED, ids=lambda field: field.name)
def test_each_field_has_its_place_in_the_json_of_the_server(field: SelectionField) -> None:
    selection = Selection(**{field.name: value_of(field)})
    assert selection.as_json() == nested([(field, value_of(field))])
    ServerSelection.model_validate(selection.as_json())


def test_docstring_describes_every_field() -> None:
    text = Selection.__doc__ or ""
    assert [field.name for field in DECLARED if f"        {field.name}: " not in text] == []


def test_empty_selection_is_the_whole_trace() -> None:
    assert Selection().as_json() == {}
    assert chosen(None, {}) is None


def test_integers_of_other_types_become_exact_integers() -> None:
    selection = Selection(steps=np.array([3, 2**62]), window_start_ns=cast("int", np.int64(2**62)))
    assert selection.as_json() == {"steps": [3, 2**62], "window": {"start_ns": 2**62}}
    assert type(selection.as_json()["steps"][0]) is int
    assert Selection(steps=range(3, 6)).as_json() == {"steps": [3, 4, 5]}


@pytest.mark.parametrize(
    "wrong", [{"steps": "3"}, {"streams": "0/7"}, {"steps": 3}, {"steps": [1.5]}, {"min_dur_ns": 1.5}]
)
def test_value_of_the_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=next(iter(wrong))):
        Selection(**wrong)


def test_unknown_criterion_is_refused() -> None:
    with pytest.raises(TypeError, match="stepz"):
        chosen(None, {"stepz": [3]})  # type: ignore[typeddict-unknown-key] # the claim


def test_selection_in_two_ways_is_refused() -> None:
    with pytest.raises(TypeError, match="either"):
        chosen({"steps": [1]}, {"steps": [3]})


def test_selection_is_immutable_and_hashable() -> None:
    selection = Selection(steps=[3])
    with pytest.raises(FrozenInstanceError):
        selection.steps = [4]  # type: ignore[misc] # the claim
    assert {selection, Selection(steps=(3,))} == {selection}


def test_keyword_arguments_object_and_json_select_the_same_events(dock: Driven) -> None:
    trace = dock.wait(dock.upload(DATA / "cpu_train_steps.pt.trace.json.gz"))
    step = trace["steps"][1]["number"]
    counts = [
        dock.sql(trace, "SELECT count(*) AS n FROM slice", **selection).column("n")
        for selection in (
            {"steps": [step]},
            {"selection": Selection(steps=[step])},
            {"selection": {"steps": [step]}},
        )
    ]
    whole = dock.sql(trace, "SELECT count(*) AS n FROM slice").column("n")
    assert counts[0] == counts[1] == counts[2] < whole

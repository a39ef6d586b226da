"""Faults of refused values."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from service.trace.faults import faults_of


class Window(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: list[int] = []

    @model_validator(mode="after")
    def refuse_no_steps(self) -> "Window":
        if not self.steps:
            raise ValueError("no steps")
        return self


def faults(values: object) -> str:
    with pytest.raises(ValidationError) as refused:
        Window.model_validate(values)
    return faults_of(refused.value, "window")


def test_each_fault_has_the_path_of_its_value() -> None:
    text = faults({"steps": [1, "x"], "stream": 7})
    assert [fault.partition(": ")[0] for fault in text.split("; ")] == ["steps.1", "stream"]


def test_fault_of_the_whole_has_its_name() -> None:
    assert faults({}) == "window: Value error, no steps"

"""Parameters that many questions share."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Parameters(BaseModel):
    """Parameters of a question; by default there are none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkParameters(Parameters):
    """Rules for what counts as work on a GPU; tools differ in them."""

    last_step: Literal["keep", "drop"] = Field(
        "keep", description="`drop` keeps only work launched before the last of several steps starts, as HTA does"
    )
    linked_only: bool = Field(False, description="leave out work whose launch is not in the trace, as TraceLens does")
    memset: Literal["mem", "comp"] = Field("mem", description="whether memsets count as memory work or as computing")
    types: Literal["exact", "hta"] = Field(
        "exact",
        description="`hta` sorts work into types by HTA's patterns, counts all events with a stream in their arguments,"
        " and does not distinguish devices",
    )

"""Parameters that many questions share."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Parameters(BaseModel):
    """What may be chosen in a question; this is nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkParameters(Parameters):
    """What counts as work on a GPU, where tools disagree."""

    last_step: Literal["keep", "drop"] = Field(
        "keep", description="`drop` leaves out what was not launched before the last of several steps, as HTA does"
    )
    linked_only: bool = Field(False, description="leave out work whose launch is not in the trace, as TraceLens does")
    memset: Literal["mem", "comp"] = Field("mem", description="whether memsets are memory work or computing")
    types: Literal["exact", "hta"] = Field(
        "exact",
        description="`hta` sorts work into types by HTA's patterns, counts all whose arguments tell a stream,"
        " and tells no devices apart",
    )

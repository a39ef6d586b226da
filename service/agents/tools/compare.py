"""The tool `compare`: what changed between two traces, runs or selections."""

from typing import Literal

from pydantic import Field

from service.agents.api import Api
from service.agents.tools.analyse import WAIT_S, AnswerArguments, answered
from service.agents.tools.tool import ChosenCycle, Selected, Subject, Tool, as_text


class CompareArguments(AnswerArguments):
    """Arguments of `compare`."""

    base: Subject
    other: Subject
    base_selection: Selected = None
    other_selection: Selected = Field(None, description="like base_selection; default: all")
    base_cycle: ChosenCycle = Field(None, description="default: other_cycle, unless the base has only one cycle")
    other_cycle: ChosenCycle = None
    analysis: Literal["compare", "compare_snapshots"] = Field(
        "compare", description="what to compare: times, or with `compare_snapshots` the memory of two memory snapshots"
    )


async def run(api: Api, arguments: CompareArguments) -> str:
    """Return a table of the comparison."""
    base, other = await api.target(arguments.base), await api.target(arguments.other)
    answer = await api.get(
        f"{other.path}/analysis/{arguments.analysis}", base=base.id, selection=as_text(arguments.other_selection),
        base_selection=as_text(arguments.base_selection or {}), limit=arguments.max_rows, offset=arguments.offset,
        base_cycle=arguments.base_cycle, cycle=arguments.other_cycle, wait=WAIT_S,
    )  # fmt: skip
    return answered(answer, arguments)


TOOL = Tool(
    "compare",
    "Compare two traces, runs or steps",
    "Compares `other` with `base`: two traces or two runs, two selections of one trace, such as two steps, or two"
    " memory snapshots. Returns what grew and what shrank; the reply names further tables.",
    CompareArguments,
    run,
)

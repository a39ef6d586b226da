"""What holds memory? When, of which device, for which operator."""

from pydantic import Field

from service.analysis.facts.host import ANNOTATION, OP, host_of
from service.analysis.facts.memory_events import CHANGES
from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, Column, count, made, ns, word


def _bytes(name: str, description: str) -> Column:
    return Column(f"{name}_bytes", "int", "bytes", description)


DEVICE_TYPE = word("device_type", "as torch names it: CPU, CUDA, …")
DEVICE_ID = count("device", "number of the device of that type; -1 for the CPU")
OPERATOR = word("operator", "the innermost operator or annotation that lasted on the thread; empty where none did")
CALLER = word("caller", "the operator or annotation around that")
DEVICES = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    count("allocations", "how many there are"),
    count("frees", "how many there are"),
    _bytes("allocated", "sum of the allocations"),
    _bytes("freed", "sum of the frees"),
    _bytes("peak", "the most that was allocated at once; empty where the trace does not tell what is (before 2022)"),
    ns("peak_at", "when that was first"),
    _bytes("peak_reserved", "the most that the allocator held at once, used and unused"),
    _bytes("peak_growth", "the most by which memory outgrew what was allocated when the trace began"),
    ns("peak_growth_at", "when that was first"),
    _bytes("unfreed", "of allocations that the trace does not see freed"),
    count("unfreed_allocations", "how many these are"),
    _bytes("before", "of frees of what was allocated before the trace"),
    count("before_frees", "how many these are"),
)
CURVE = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    ns("at", "when it changed"),
    _bytes("allocated", "from then on; empty where the trace does not tell it"),
    _bytes("reserved", "from then on; likewise"),
    _bytes("growth", "from then on, sum of all changes since the trace began"),
)
OPERATORS = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    word("operator", "name; `ProfilerStep*` are all steps"),
    word("kind", "op or annotation"),
    count("calls", "how often it ran; an only child of the same name is no call of its own"),
    _bytes("increase_total", "allocated less freed in it"),
    _bytes("increase_self", "of that, in no operator or annotation in it"),
    count("allocations_total", "how many there are in it"),
    count("allocations_self", "of these, in no operator or annotation in it"),
    _bytes("allocated_total", "sum of the allocations in it"),
    _bytes("allocated_self", "of that, in no operator or annotation in it"),
)
AT_PEAK = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    OPERATOR,
    CALLER,
    count("allocations", "that it had made and that were not freed at the peak"),
    _bytes("held", "sum of these"),
)
BLOCKS = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    OPERATOR,
    CALLER,
    word("category", "what it is for, as in `categories`; empty where that is not known"),
    _bytes("size", "of the block"),
    ns("allocated_at", "when; empty if before the trace"),
    ns("freed_at", "when; empty if the trace does not see it"),
    ns("lasting", "from one to the other"),
    count("address", "of the block"),
)
CATEGORIES = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    word("category", "what blocks are for, as torch's memory timeline calls it; empty where that is not known"),
    word("reason", "why it is not known"),
    count("blocks", "how many there are; empty of those that the trace does not show"),
    _bytes("size", "sum of these, likewise"),
    _bytes("held_at_peak", "of that, when the device had the most"),
)


class MemoryParameters(Parameters):
    """How much is told."""

    points: int = Field(1000, ge=2, le=1_000_000, description="points of the curve of each device, about")
    top: int = Field(1000, ge=0, le=1_000_000, description="how many blocks are told: the largest")


def answer(scope: Scope, parameters: MemoryParameters) -> Tables:
    """The memory of a rank."""
    from service.analysis.facts.memory_categories import by_category, told_of  # noqa: PLC0415 - loads numba
    from service.analysis.facts.memory_use import MemoryUse  # noqa: PLC0415 - loads numba, which the server does without

    use = MemoryUse(scope.table(CHANGES), host_of(scope, {OP, ANNOTATION}))
    found = {
        "devices": use.devices(),
        "curve": use.curve(parameters.points),
        "operators": use.operators(),
        "at_peak": use.at_peak(),
        "blocks": use.blocks(parameters.top) | {"category": told_of(use, parameters.top)},
        "categories": by_category(use),
    }
    return {
        name: made(TABLES[name], {**values, "rank": [scope.rank] * len(values["device"])})
        for name, values in found.items()
    }


def missing(scope: Scope) -> str | None:
    """A reason where no memory was recorded."""
    changes = "SELECT 1 FROM events WHERE name = '[memory]' AND ts_ns NOTNULL LIMIT 1"
    some = "[memory]" in scope.names() and len(scope.table(changes))
    return None if some else "No memory is in this trace: it was recorded without `profile_memory=True`."


TABLES = {
    "devices": DEVICES,
    "curve": CURVE,
    "operators": OPERATORS,
    "at_peak": AT_PEAK,
    "blocks": BLOCKS,
    "categories": CATEGORIES,
}
QUESTION = Question(
    name="memory",
    answers="What holds memory?",
    definition="Each change counts for the innermost operator or annotation that lasts on its thread, to which its end"
    " does not belong, and for all around that. An allocation is freed by the next change at its address on its device."
    " A curve of more points than asked for has the least and the most of each of equal times. A trace does not tell"
    " tensors; a block's category is read from where it is allocated and freed: within one outermost operator or one"
    " optimizer step it is temporary; from a DataLoader input; from elsewhere to backward activation; from one function"
    " of backward to another autograd_detail; from backward to later gradient; from an optimizer step to later"
    " optimizer_state. All others have a reason and no category.",
    source="https://github.com/pytorch/kineto/blob/main/tb_plugin/README.md",
    tables=TABLES,
    parameters=MemoryParameters,
    missing=missing,
    answer=answer,
    cost=4,
)

"""What holds memory: when, on which device, and for which operator?"""

from pydantic import Field

from service.analysis.facts.host import ANNOTATION, OP, host_of
from service.analysis.facts.memory_changes import memory_changes_of
from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, count, ns, size, table_of, word

DEVICE_TYPE = word("device_type", "type of the device as torch names it: CPU, CUDA, …")
DEVICE_ID = count("device", "number of the device among those of its type; -1 for the CPU")
OPERATOR = word("operator", "innermost operator or annotation in which the memory is allocated; empty if none")
CALLER = word("caller", "operator or annotation that directly encloses `operator`; empty if none")
DEVICES = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    count("allocations", "number of allocations"),
    count("frees", "number of frees"),
    size("allocated", "sum of the allocations"),
    size("freed", "sum of the frees"),
    size("peak", "the most that was allocated at once; empty if the trace does not record totals (before 2022)"),
    ns("peak_at", "first time of the peak"),
    size("peak_reserved", "the most that the allocator held at once, used and unused"),
    size("peak_growth", "the largest growth of memory since the trace began"),
    ns("peak_growth_at", "first time of that growth"),
    size("unfreed", "sum of the allocations that are not freed within the trace"),
    count("unfreed_allocations", "number of allocations that are not freed within the trace"),
    size("before", "sum of the frees of memory that was allocated before the trace"),
    count("before_frees", "number of frees of memory that was allocated before the trace"),
)
CURVE = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    ns("at", "time of the change"),
    size("allocated", "allocated memory from then on; empty if the trace does not record it"),
    size("reserved", "memory that the allocator holds from then on; empty if the trace does not record it"),
    size("growth", "sum of all changes since the trace began, including this one"),
)
OPERATORS = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    word("operator", "name; `ProfilerStep*` stands for all steps"),
    word("kind", "op or annotation"),
    count("calls", "number of calls; an only child of the same name does not count"),
    size("increase_total", "allocated memory less freed memory in its calls"),
    size("increase_self", "part of `increase_total_bytes` outside of inner operators and annotations"),
    count("allocations_total", "number of allocations in its calls"),
    count("allocations_self", "part of `allocations_total` outside of inner operators and annotations"),
    size("allocated_total", "sum of the allocations in its calls"),
    size("allocated_self", "part of `allocated_total_bytes` outside of inner operators and annotations"),
)
AT_PEAK = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    OPERATOR,
    CALLER,
    count("allocations", "number of the operator's allocations that were not freed at the peak"),
    size("held", "sum of these allocations"),
)
BLOCKS = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    OPERATOR,
    CALLER,
    word("category", "purpose of the block, as in `categories`; empty if unknown"),
    size("size", "size of the block"),
    ns("allocated_at", "time of the allocation; empty if before the trace"),
    ns("freed_at", "time of the free; empty if not within the trace"),
    ns("lasting", "time from the allocation to the free; empty if one is not in the trace"),
    count("address", "address of the block"),
)
CATEGORIES = (
    RANK,
    DEVICE_TYPE,
    DEVICE_ID,
    word("category", "purpose of the blocks, as in torch's memory timeline; empty if unknown"),
    word("reason", "why the category is unknown"),
    count("blocks", "number of blocks; empty for those that the trace does not record"),
    size("size", "sum of the blocks' sizes; empty for those that the trace does not record"),
    size("held_at_peak", "memory of the blocks that were held at the device's peak"),
)


class MemoryParameters(Parameters):
    """Parameters of `memory`."""

    points: int = Field(
        1000, ge=2, le=1_000_000, description="approximate number of points of the curve of each device"
    )
    top: int = Field(1000, ge=0, le=1_000_000, description="maximum number of blocks to list; the largest are listed")


def answer(scope: Scope, parameters: MemoryParameters) -> Tables:
    """Return the tables of a rank's memory."""
    from service.analysis.facts.memory_categories import category_table, largest_block_categories  # noqa: PLC0415 - loads numba
    from service.analysis.facts.memory_use import MemoryUse  # noqa: PLC0415 - loads numba, which the server does without

    use = MemoryUse(memory_changes_of(scope), host_of(scope, {OP, ANNOTATION}))
    columns = {
        "devices": use.devices(),
        "curve": use.curve(parameters.points),
        "operators": use.operators(),
        "at_peak": use.at_peak(),
        "blocks": use.blocks(parameters.top) | {"category": largest_block_categories(use, parameters.top)},
        "categories": category_table(use),
    }
    return {
        name: table_of(TABLES[name], {**values, "rank": [scope.rank] * len(values["device"])})
        for name, values in columns.items()
    }


def notes(tables: Tables) -> list[str]:
    """Return a remark on a trace whose memory events have no addresses."""
    if len(tables["categories"]) or not len(tables["devices"]):
        return []
    return ["The memory events have no addresses, so that their blocks, and what is held at the peak, are unknown."]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no memory events."""
    if "[memory]" in scope.names() and scope.has_event("name = '[memory]' AND ts_ns NOTNULL"):
        return None
    if scope.is_selection and scope.event_count("i", "cpu_instant_event"):
        return "No memory event is in this selection."
    return "This trace has no memory events: it was recorded without `profile_memory=True`."


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
    short_question="What holds memory?",
    definition="Each change counts for the innermost operator or annotation that runs on its thread at that time, and"
    " for all that enclose it; the end time of an operator or annotation is exclusive. An allocation is freed by the"
    " next change at the same address of the same device. A curve with more changes than the requested points is"
    " reduced to the minimum and maximum of equally long intervals. A trace does not record tensors, so the category"
    " of a block is derived from where it is allocated and freed. A block that is allocated and freed within one"
    " outermost operator or one optimizer step is `temporary`; allocated by a DataLoader, it is `input`; allocated"
    " elsewhere and freed in backward, `activation`; allocated in one function of backward and freed in another,"
    " `autograd_detail`; allocated in backward and kept after it, `gradient`; allocated in an optimizer step and kept"
    " after it, `optimizer_state`. All other blocks have a reason instead of a category.",
    source="https://github.com/pytorch/kineto/blob/main/tb_plugin/README.md",
    tables=TABLES,
    parameters=MemoryParameters,
    inapplicable_reason=missing,
    notes_of=notes,
    answer=answer,
    cost=4,
    is_large=True,
)

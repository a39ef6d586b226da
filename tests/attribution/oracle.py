"""Which work belongs to which launch, operator and step, in plain Python: what `service.attribution` is held to.

Nothing here is shared with the service. Events are those of `tests.brute.Document`, whose times come from decimal text.
"""

import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.brute import Document, Event

WORK = {"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"}
OPERATORS = {"cpu_op", "Operator"}
LEFT_OUT = {
    "[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
}  # fmt: skip


def _thread(event: "Event") -> Any:
    pid, tid = event.track
    return pid, int(tid) if isinstance(tid, str) and re.fullmatch(r"[0-9]{1,18}", tid) else tid


class Attributed:
    """The attribution of a document's events; all are told by their index.

    Args:
        document: with its events.
        ranks: of a merged trace, the rank of each process.
    """

    def __init__(self, document: "Document", ranks: dict[Any, int] | None = None) -> None:
        self.ranks = ranks or {}
        self.slices = sorted(
            (one for one in document.events if one.ph == "X" and one.start is not None),
            key=lambda one: (one.start, -one.lasts, document.order[one.index]),
        )
        self.work = [one for one in self.slices if one.cat in WORK]
        self.operators = [
            one
            for one in self.slices
            if one.cat in OPERATORS and one.name not in LEFT_OUT and not (one.name or "").startswith("ProfilerStep#")
        ]
        self.events = {one.index: one for one in document.events}

    def _rank(self, event: "Event") -> int | None:
        return self.ranks.get(event.track[0])

    # -- launches and operators ---------------------------------------------------------------------------------------

    @cached_property
    def _calls(self) -> dict[int, "Event"]:
        calls: dict[int, Event] = {}
        for one in self.slices:
            if one.is_launch and one.correlation is not None and one.correlation > 0:
                calls.setdefault(one.correlation, one)
        return calls

    def launch(self, event: "Event") -> "Event | None":
        return self._calls.get(event.correlation) if event.correlation is not None and event.correlation > 0 else None

    @cached_property
    def _places(self) -> dict[int, int]:
        return {one.index: place for place, one in enumerate(self.slices)}

    @cached_property
    def _of_threads(self) -> dict[Any, list["Event"]]:
        threads: dict[Any, list[Event]] = defaultdict(list)
        for one in self.operators:
            threads[_thread(one)].append(one)
        return threads

    @cached_property
    def _around(self) -> dict[int, "Event | None"]:
        """The innermost operator around each launch: the last of those before it that lasts as it begins."""
        found: dict[int, Event | None] = {}
        waiting = {thread: list(reversed(ones)) for thread, ones in self._of_threads.items()}
        lasting: dict[Any, list[Event]] = defaultdict(list)
        for call in sorted(self._calls.values(), key=lambda one: self._places[one.index]):
            thread, mine = _thread(call), lasting[_thread(call)]
            ahead = waiting.get(thread, [])
            while ahead and self._places[ahead[-1].index] < self._places[call.index]:
                mine.append(ahead.pop())
            assert call.start is not None
            mine[:] = [one for one in mine if one.end > call.start]
            found[call.index] = mine[-1] if mine else None
        return found

    def external_id(self, event: "Event") -> int:
        launch = self.launch(event)
        told = event.external if (event.external or 0) > 0 else launch.external if launch else 0
        return max(told or 0, 0)

    @cached_property
    def external_ids(self) -> str:
        """What the External ids of work are."""
        pairs = [(self.external_id(one), self._by_launch(one)) for one in self.work]
        compared = [(id_, op.external) for id_, op in pairs if id_ and op]
        if compared:
            return "operators" if 100 * sum(a == b for a, b in compared) >= 99 * len(compared) else "other"
        lacking = [one for one in self.work if self.external_id(one)]
        if not lacking:
            return "unknown"
        fitting = sum(self._fits(one) for one in lacking)
        return "operators" if 100 * fitting >= 99 * len(lacking) else "other"

    def _fits(self, event: "Event") -> bool:
        operator = self._named.get(self.external_id(event))
        if operator is None or event.start is None or operator.start is None:
            return False
        return operator.start <= event.start and self.external_id(event) != event.correlation

    @cached_property
    def _named(self) -> dict[int, "Event"]:
        counts = Counter(one.external for one in self.operators)
        return {one.external: one for one in self.operators if one.external and counts[one.external] == 1}

    def _by_launch(self, event: "Event") -> "Event | None":
        launch = self.launch(event)
        return self._around[launch.index] if launch else None

    def operator(self, event: "Event") -> "Event | None":
        found = self._by_launch(event)
        if not found and self.external_ids == "operators":
            return self._named.get(self.external_id(event))
        return found

    def rule(self, event: "Event") -> str:
        launch, graph = self.launch(event), ""
        if launch:
            graph = "graph" if "GraphLaunch" in (launch.name or "") else "launch"
        if launch and self._around[launch.index]:
            return graph
        if self.operator(event):
            return "external_id"
        return f"{graph}_outside_operators" if launch else "no_launch"

    # -- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def _annotations(self) -> list[tuple["Event", int]]:
        found = []
        for one in self.slices:
            told = re.fullmatch(r"ProfilerStep#(\d{1,18})", one.name or "")
            if told and one.cat not in WORK | {"gpu_user_annotation"}:
                found.append((one, int(told[1])))
        return found

    def _merged(self, annotations: list[tuple["Event", int]]) -> list[tuple[int, int, int]]:
        """Start, end and number of steps; annotations of one step that overlap are one."""
        steps: list[list[int]] = []
        for one, number in annotations:
            assert one.start is not None
            end = max(one.end, one.start + 1)
            same = next((step for step in reversed(steps) if step[2] == number), None)
            if same and one.start < same[1]:
                same[1] = max(same[1], end)
            else:
                steps.append([one.start, end, number])
        return [(start, end, number) for start, end, number in steps]

    @cached_property
    def _steps(self) -> dict[Any, list[tuple[int, int, int]]]:
        """The steps of each rank; and of each thread that annotates some, where another thread of its rank does too."""
        by: dict[Any, list[tuple[Event, int]]] = defaultdict(list)
        for one, number in self._annotations:
            by["rank", self._rank(one)].append((one, number))
            by["thread", _thread(one)].append((one, number))
        return {key: self._merged(annotations) for key, annotations in by.items()}

    def step_at(self, event: "Event") -> int | None:
        """The step in which an event begins, by its time on its thread."""
        if event.start is None:
            return None
        steps = self._steps.get(("thread", _thread(event))) or self._steps.get(("rank", self._rank(event)), [])
        begun = [step for step in steps if step[0] <= event.start]
        return begun[-1][2] if begun and begun[-1][1] > event.start else None

    @cached_property
    def _regions(self) -> dict[Any, "Event"]:
        regions: dict[Any, Event] = {}
        for one in self.slices:
            if one.cat in {"user_annotation", "User"} and (one.external or 0) > 0:
                regions.setdefault((one.external, one.name), one)
        return regions

    def step(self, event: "Event") -> int | None:
        """The step to which an event belongs."""
        cause: Event | None = None
        if event.ph == "X" and event.start is not None:
            if event.cat in WORK | {"cuda_sync"}:
                cause = self.launch(event)
            elif event.cat == "gpu_user_annotation" and (event.external or 0) > 0:
                cause = self._regions.get((event.external, event.name))
        return self.step_at(cause or event)

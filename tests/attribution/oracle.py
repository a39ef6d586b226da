"""Oracle for `service.attribution`: the launch, operator and step of work, in plain Python.

It shares no code with the service. Events are those of `tests.brute.Document`, whose times come from decimal text.
"""

import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.brute import Document, Event

WORK = {"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"}
OPERATORS = {"cpu_op", "Operator"}
IGNORED_OPERATORS = {
    "[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
}  # fmt: skip


def _thread(event: "Event") -> Any:
    """Return the pid and tid of an event; a tid that is a string of digits counts as the number."""
    pid, tid = event.track
    return pid, int(tid) if isinstance(tid, str) and re.fullmatch(r"[0-9]{1,18}", tid) else tid


class AttributionOracle:
    """The attribution of a document's events; each event is identified by its index.

    Args:
        document: the document with its events.
        ranks: the rank of each process of a merged trace, by pid.
    """

    def __init__(self, document: "Document", ranks: dict[Any, int] | None = None) -> None:
        self.ranks = ranks or {}
        self.slices = sorted(
            (event for event in document.events if event.ph == "X" and event.start is not None),
            key=lambda event: (event.start, -event.lasts, document.order[event.index]),
        )
        self.work = [event for event in self.slices if event.cat in WORK]
        self.operators = [
            event
            for event in self.slices
            if event.cat in OPERATORS
            and event.name not in IGNORED_OPERATORS
            and not (event.name or "").startswith("ProfilerStep#")
        ]
        self.events = {event.index: event for event in document.events}

    def _rank(self, event: "Event") -> int | None:
        return self.ranks.get(event.track[0])

    # -- launches and operators ---------------------------------------------------------------------------------------

    @cached_property
    def _launches(self) -> dict[int, "Event"]:
        """The launches, by correlation; the first of each counts."""
        launches: dict[int, Event] = {}
        for event in self.slices:
            if event.is_launch and event.correlation is not None and event.correlation > 0:
                launches.setdefault(event.correlation, event)
        return launches

    def launch(self, event: "Event") -> "Event | None":
        return (
            self._launches.get(event.correlation) if event.correlation is not None and event.correlation > 0 else None
        )

    @cached_property
    def _order(self) -> dict[int, int]:
        """The position of each slice in order of time, by the slice's index."""
        return {event.index: position for position, event in enumerate(self.slices)}

    @cached_property
    def _operators_by_thread(self) -> dict[Any, list["Event"]]:
        by_thread: dict[Any, list[Event]] = defaultdict(list)
        for event in self.operators:
            by_thread[_thread(event)].append(event)
        return by_thread

    @cached_property
    def _enclosing_operators(self) -> dict[int, "Event | None"]:
        """The innermost operator around each launch: the last to start of those that are open as the launch starts."""
        enclosing: dict[int, Event | None] = {}
        pending = {thread: list(reversed(operators)) for thread, operators in self._operators_by_thread.items()}
        stacks: dict[Any, list[Event]] = defaultdict(list)
        for launch in sorted(self._launches.values(), key=lambda event: self._order[event.index]):
            thread, stack = _thread(launch), stacks[_thread(launch)]
            operators = pending.get(thread, [])
            while operators and self._order[operators[-1].index] < self._order[launch.index]:
                stack.append(operators.pop())
            assert launch.start is not None
            stack[:] = [operator for operator in stack if operator.end > launch.start]
            enclosing[launch.index] = stack[-1] if stack else None
        return enclosing

    def external_id(self, event: "Event") -> int:
        launch = self.launch(event)
        external_id = event.external if (event.external or 0) > 0 else launch.external if launch else 0
        return max(external_id or 0, 0)

    @cached_property
    def external_ids(self) -> str:
        """The kind of the External ids of work: "operators" (operators' ids), "other" (other ids) or "unknown"."""
        pairs = [(self.external_id(event), self._operator_of_launch(event)) for event in self.work]
        compared = [(id_, op.external) for id_, op in pairs if id_ and op]
        if compared:
            return "operators" if 100 * sum(a == b for a, b in compared) >= 99 * len(compared) else "other"
        with_id = [event for event in self.work if self.external_id(event)]
        if not with_id:
            return "unknown"
        plausible = sum(self._is_plausible(event) for event in with_id)
        return "operators" if 100 * plausible >= 99 * len(with_id) else "other"

    def _is_plausible(self, event: "Event") -> bool:
        operator = self._operators_by_id.get(self.external_id(event))
        if operator is None or event.start is None or operator.start is None:
            return False
        return operator.start <= event.start and self.external_id(event) != event.correlation

    @cached_property
    def _operators_by_id(self) -> dict[int, "Event"]:
        counts = Counter(operator.external for operator in self.operators)
        return {
            operator.external: operator
            for operator in self.operators
            if operator.external and counts[operator.external] == 1
        }

    def _operator_of_launch(self, event: "Event") -> "Event | None":
        launch = self.launch(event)
        return self._enclosing_operators[launch.index] if launch else None

    def operator(self, event: "Event") -> "Event | None":
        operator = self._operator_of_launch(event)
        if not operator and self.external_ids == "operators":
            return self._operators_by_id.get(self.external_id(event))
        return operator

    def rule(self, event: "Event") -> str:
        """Return the name of the rule that attributes work to its operator."""
        launch, kind = self.launch(event), ""
        if launch:
            kind = "graph" if "GraphLaunch" in (launch.name or "") else "launch"
        if launch and self._enclosing_operators[launch.index]:
            return kind
        if self.operator(event):
            return "external_id"
        return f"{kind}_outside_operators" if launch else "no_launch"

    # -- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def _annotations(self) -> list[tuple["Event", int]]:
        """The annotations of steps, each with the number of its step."""
        annotations = []
        for event in self.slices:
            match = re.fullmatch(r"ProfilerStep#(\d{1,18})", event.name or "")
            if match and event.cat not in WORK | {"gpu_user_annotation"}:
                annotations.append((event, int(match[1])))
        return annotations

    def _merged_steps(self, annotations: list[tuple["Event", int]]) -> list[tuple[int, int, int]]:
        """Return start, end and number of each step; overlapping annotations with the same number are merged."""
        steps: list[list[int]] = []
        for event, number in annotations:
            assert event.start is not None
            end = max(event.end, event.start + 1)
            previous = next((step for step in reversed(steps) if step[2] == number), None)
            if previous and event.start < previous[1]:
                previous[1] = max(previous[1], end)
            else:
                steps.append([event.start, end, number])
        return [(start, end, number) for start, end, number in steps]

    @cached_property
    def _steps(self) -> dict[Any, list[tuple[int, int, int]]]:
        """The steps of each rank, and of each thread that annotates steps, by `("rank", …)` and `("thread", …)`."""
        grouped: dict[Any, list[tuple[Event, int]]] = defaultdict(list)
        for event, number in self._annotations:
            grouped["rank", self._rank(event)].append((event, number))
            grouped["thread", _thread(event)].append((event, number))
        return {key: self._merged_steps(annotations) for key, annotations in grouped.items()}

    def step_at(self, event: "Event") -> int | None:
        """Return the step in which an event begins: of its thread, or of its rank if the thread annotates no steps."""
        if event.start is None:
            return None
        steps = self._steps.get(("thread", _thread(event))) or self._steps.get(("rank", self._rank(event)), [])
        started = [step for step in steps if step[0] <= event.start]
        return started[-1][2] if started and started[-1][1] > event.start else None

    @cached_property
    def _regions(self) -> dict[Any, "Event"]:
        """The host's annotations, by External id and name."""
        regions: dict[Any, Event] = {}
        for event in self.slices:
            if event.cat in {"user_annotation", "User"} and (event.external or 0) > 0:
                regions.setdefault((event.external, event.name), event)
        return regions

    def step(self, event: "Event") -> int | None:
        """Return an event's step: that of its launch or its host annotation, or else the step in which it begins."""
        return self.step_at(self._cause(event) or event)

    def _cause(self, event: "Event") -> "Event | None":
        """Return the launch of a slice on a device, or the host's annotation of an annotation there."""
        if event.ph == "X" and event.start is not None:
            if event.cat in WORK | {"cuda_sync"}:
                return self.launch(event)
            if event.cat == "gpu_user_annotation" and (event.external or 0) > 0:
                return self._regions.get((event.external, event.name))
        return None

    def deciding_annotations(self, event: "Event") -> list["Event"]:
        """Return the annotations that a trace needs for the event to have the same step, or none, as in this trace.

        These are all annotations of its step. An event between steps of its own thread may need one, too: without it,
        the event would lie in a longer step around it, or in a step of another thread.
        """
        if event.start is None:
            return []
        number, cause = self.step(event), self._cause(event)
        if cause and number is not None:
            return self._annotations_of(self._rank(event), number, event.start)
        if cause and event.cat in WORK | {"cuda_sync"}:
            return []
        of_rank = self._steps.get(("rank", self._rank(event)), [])
        if not any(start <= event.start < end for start, end, _ in of_rank):
            return []
        own = self._steps.get(("thread", _thread(event))) or of_rank
        start, _, number = ([step for step in own if step[0] <= event.start] or own[:1])[-1]
        return self._annotations_of(self._rank(event), number, start)

    def _annotations_of(self, rank: int | None, number: int, time: int) -> list["Event"]:
        """Return the annotations of a rank's step: the last one of the number that began by the time, or the first."""
        steps = [step for step in self._steps[("rank", rank)] if step[2] == number]
        start, end, _ = ([step for step in steps if step[0] <= time] or steps[:1])[-1]
        return [
            event
            for event, other in self._annotations
            if other == number and self._rank(event) == rank and event.start is not None and start <= event.start < end
        ]

"""The composition of a report: what was profiled, and a section for each analysis."""

from collections.abc import Callable, Mapping, Sequence

from service import __version__
from service.analysis.catalogue import question_of
from service.report.answers import Answer, NotKnown
from service.report.document import Block, Fact, Report, Section, Sentence, Unknown
from service.report.sections import RUN_SECTIONS, TRACE_SECTIONS, SectionPlan
from service.trace.cycles import DEFAULT_CYCLE, Cycle, Item, SummaryOf, by_cycle, chosen_cycle
from service.trace.summary import Summary

TRACE_ANALYSES = tuple(plan.analysis for plan in TRACE_SECTIONS)
"""The analyses that the report of a trace needs."""
RUN_ANALYSES = tuple(plan.analysis for plan in RUN_SECTIONS)
"""The analyses that the report of a run needs."""
_STEPS_SHOWN = 8

Answers = Mapping[str, Answer | NotKnown]
"""The answers by the names of the analyses."""


def reported_cycle(
    traces: Sequence[Item], number: int | None, summary_of: SummaryOf[Item]
) -> tuple[Cycle[Item], list[Fact]]:
    """Return the cycle of a run to report on, by default the first, and the facts that tell it from other cycles.

    Args:
        traces: the traces of the run, at least one.
        number: number of the cycle; None if none is chosen.
        summary_of: returns the summary of a trace.

    Raises:
        UnknownCycle: the run does not have the cycle.
    """
    cycles = by_cycle(traces, summary_of)
    chosen = chosen_cycle(cycles, DEFAULT_CYCLE if number is None else number)
    others = [cycle.name for cycle in cycles if cycle is not chosen]
    return chosen, [Fact("Cycle", chosen.name), Fact("Other cycles", ", ".join(others))] if others else []


def trace_report(
    name: str, summary: Summary, answers: Answers, call_of: Callable[[str], str], *, selection: str = ""
) -> Report:
    """Compose the report of a trace.

    Args:
        name: the trace's name.
        summary: its summary.
        answers: the answers of `TRACE_ANALYSES`.
        call_of: returns how to get the whole answer of an analysis.
        selection: the part of the trace that is reported, as JSON; empty for all of it.
    """
    facts = [*_facts(summary), *([Fact("Selection", selection)] if selection else [])]
    return Report(name, facts, _problems(summary), _sections(TRACE_SECTIONS, answers, call_of), __version__)


def run_report(
    name: str,
    traces: Sequence[tuple[str, Summary]],
    answers: Answers,
    call_of: Callable[[str], str],
    *,
    cycle_facts: Sequence[Fact] = (),
    left_out: Sequence[str] = (),
    selection: str = "",
) -> Report:
    """Compose the report of a run, or of a cycle of it.

    Args:
        name: the run's name.
        traces: its traces: the name and the summary of each.
        answers: the answers of `RUN_ANALYSES`.
        call_of: returns how to get the whole answer of an analysis.
        cycle_facts: which cycle of the run is reported, and which others it has; empty if it has only one.
        left_out: names of its traces that could not be read.
        selection: the part of each trace that is reported, as JSON; empty for all of it.
    """
    summaries = [summary for _, summary in traces]
    ranks = sorted({rank for summary in summaries for rank in summary.known_ranks})
    devices = sorted({device["name"] for summary in summaries for device in summary.devices if device["name"]})
    worlds = {summary.world_size for summary in summaries} - {None}
    facts = [
        *cycle_facts,
        Fact("Traces", len(summaries)),
        Fact("Ranks", f"{_listed(ranks)} of {worlds.pop()}" if len(worlds) == 1 else _listed(ranks)),
        Fact("GPUs", ", ".join(devices) or None),
        Fact("Events", sum(summary.kept_events for summary in summaries)),
        *([Fact("Selection", selection)] if selection else []),
    ]
    problems = [f"{trace} could not be read, and is left out." for trace in left_out]
    problems += [f"{trace}: {text}" for trace, summary in traces for text in _problems(summary)]
    return Report(name, facts, problems, _sections(RUN_SECTIONS, answers, call_of), __version__)


def _facts(summary: Summary) -> list[Fact]:
    bounds = summary.bounds
    devices = dict.fromkeys(device["name"] or f"GPU {device['id']}" for device in summary.devices)
    world = "" if summary.world_size is None else f" of {summary.world_size}"
    steps = [step["number"] for step in summary.steps]
    return [
        Fact("Rank", None if summary.rank is None else f"{summary.rank}{world}"),
        Fact("Host", summary.host),
        Fact("Backend", summary.backend),
        Fact("GPUs", ", ".join(devices) if devices else "none"),
        Fact("Time from the first event to the last", bounds and bounds["end_ns"] - bounds["start_ns"], "ns"),
        Fact("Steps", f"{summary.steps_count} ({_listed(steps)})" if steps else "none"),
        Fact("Events", summary.kept_events),
    ]


def _problems(summary: Summary) -> list[str]:
    return [f"{note['detail']} ({_times(note['count'])})" for note in summary.health.get("notes", [])]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _listed(numbers: Sequence[int]) -> str:
    """Return the numbers, the first ones of many."""
    more = f" and {len(numbers) - _STEPS_SHOWN} more" if len(numbers) > _STEPS_SHOWN else ""
    return ", ".join(map(str, numbers[:_STEPS_SHOWN])) + more


def _sections(plans: Sequence[SectionPlan], answers: Answers, call_of: Callable[[str], str]) -> list[Section]:
    sections = []
    for plan in plans:
        answer = answers[plan.analysis]
        blocks: list[Block]
        if isinstance(answer, NotKnown):
            if plan.if_known:
                continue
            blocks = [Unknown(answer.reason)]
        else:
            blocks = [*plan.blocks(answer), *map(Sentence, answer.remarks)]
        sections.append(Section(plan.title, blocks, question_of(plan.analysis).definition, call_of(plan.analysis)))
    return sections

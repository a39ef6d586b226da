"""Facts and damage of a trace, as the command line shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from service.cli.quantities import duration, grouped, size
from service.cli.render import dashed, moment, visible
from service.cli.selection import as_text

Fact: TypeAlias = tuple[str, Any, str]  # name, exact value for a pipe, text for a terminal

_ALWAYS_SHOWN = ("id", "name", "state", "created_at")
_SHOWN_IF_SET = ("format", "rank", "world_size", "backend", "host", "parent")
_SHOWN_COUNTS_MAX = 8


def facts(trace: dict[str, Any]) -> Iterator[Fact]:
    """Yield the facts of a trace; values have complete lists, and texts only the beginning of long lists."""
    for name in _ALWAYS_SHOWN:
        yield name, trace[name], moment(trace[name]) if name == "created_at" else dashed(trace[name])
    if trace["error"]:
        error = trace["error"]
        yield (
            "error",
            error["code"],
            visible(f"{error['title']}: {error.get('detail', '')} ({error['code']})"),
        )
    yield "size", trace["size"], f"{size(trace['size'])} ({grouped(trace['size'])} bytes)"
    yield "sha256", trace["sha256"], dashed(trace["sha256"])
    for name in _SHOWN_IF_SET:
        if trace.get(name) is not None:
            yield name, trace[name], dashed(trace[name])
    if group := trace.get("group"):
        yield "group", group["id"], f"{visible(group['name'])} ({group['id']})"
    if trace.get("selection") is not None:
        text = as_text(trace["selection"]) or "{}"
        yield "selection", text, visible(text)
    if trace["bounds"]:
        yield from _times(trace)
    yield from _contents(trace)
    for rank in trace.get("ranks", []):
        text = _alignment(rank)
        yield "merged_rank", text, visible(text)
        for beside in rank.get("beside", []):
            text = f"{rank['rank']} {beside['kind']}, shift {beside['shift_ns']} ns: {beside['name']}"
            yield "merged_beside", text, visible(text)
    for note in trace["health"].get("notes", []):
        yield from _note_facts(note)


def damage(trace: dict[str, Any]) -> str | None:
    """Summarise refused and repaired events in a few words; None if there are none."""
    health = trace["health"]
    refused = health.get("refused", 0)
    parts = [f"{grouped(refused)} refused"] if refused else []
    if not refused and any(note["kind"] == "refused" for note in health.get("notes", [])):
        parts.append("incomplete")
    if health.get("repaired"):
        parts.append(f"{grouped(health['repaired'])} repaired")
    return ", ".join(parts) or None


def defects(trace: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each kind of refusal and repair, with the offset of its first example."""
    for note in trace["health"].get("notes", []):
        if note["kind"] != "oddity":
            offsets = [example["offset"] for example in note["examples"] if example["offset"] is not None]
            where = f" First at byte {offsets[0]}." if offsets else ""
            yield f"{grouped(note['count'])} {note['kind']} ({note['code']}): {note['detail']}{where}"


def _alignment(rank: dict[str, Any]) -> str:
    """Describe the clock alignment of a rank of a merged trace."""
    residual = rank["residual_ns"]
    text = f"{rank['rank']} shift {rank['shift_ns']} ns, {rank['collectives']} collectives"
    if residual:
        text += f", residual {residual['median']}, {residual['p95']}, {residual['max']} ns"
    return f"{text}: {rank['name']}"


def _note_facts(note: dict[str, Any]) -> Iterator[Fact]:
    """Yield a fact for a health note, which counts refused, repaired or odd content, and one for each example."""
    description = f"({note['code']}) {note['detail']}"
    yield note["kind"], f"{note['count']} {description}", f"{grouped(note['count'])} {visible(description)}"
    for example in note["examples"]:
        offset, text = example["offset"], example["text"] or ""
        prefix = [] if offset is None else [f"byte {offset}:"]
        exact = " ".join([*prefix, text])
        yield "example", exact, f"  {visible(exact)}"


def _times(trace: dict[str, Any]) -> Iterator[Fact]:
    start, end = trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]
    yield "duration_ns", end - start, f"{duration(end - start)} ({grouped(end - start)} ns)"
    yield "start_ns", start, f"{start} ns"
    yield "end_ns", end, f"{end} ns"
    if trace["base_ns"] is not None:
        yield "base_ns", trace["base_ns"], f"{trace['base_ns']} ns"


def _contents(trace: dict[str, Any]) -> Iterator[Fact]:
    for name in ("in", "kept", "refused"):
        yield f"events_{name}", trace["events"][name], grouped(trace["events"][name])
    yield _listed("devices", [f"{d['id']} {d['name'] or ''}".rstrip() for d in trace["devices"]])
    yield _listed("streams", trace["streams"])
    yield _listed("steps", [step["name"] for step in trace["steps"]])
    yield _listed("processes", [_process(process) for process in trace["processes"]])
    yield "threads", len(trace["threads"]), grouped(len(trace["threads"]))
    counts = sorted(trace["counts"].items(), key=lambda item: -item[1])
    yield _listed("counts", [f"{kind} {count}" for kind, count in counts], _SHOWN_COUNTS_MAX)


def _process(process: dict[str, Any]) -> str:
    """Return the number of a process with its label or its name; `-` if it has neither of them."""
    return f"{process['pid']} {process['labels'] or process['name'] or ''}".strip() or "-"


def _listed(name: str, values: list[str], shown_max: int = 12) -> Fact:
    hidden = len(values) - shown_max
    text = ", ".join(map(visible, values[:shown_max])) + (f", and {hidden} more" if hidden > 0 else "")
    return name, ",".join(values), text or "-"

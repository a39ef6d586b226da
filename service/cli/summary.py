"""What is worth knowing of one trace, fact by fact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from service.cli.render import dashed, grouped, seconds, size, visible
from service.cli.selection import as_text

Fact: TypeAlias = tuple[str, Any, str]  # name, the exact value, the text for a person

_PLAIN = ("id", "name", "state", "created_at")
_ORIGIN = ("format", "rank", "world_size", "backend", "host", "group", "parent")
_MOST_COUNTS = 8


def facts(trace: dict[str, Any]) -> Iterator[Fact]:
    """Every fact of the trace that is there; a pipe sees whole lists, a person their beginning."""
    for name in _PLAIN:
        yield name, trace[name], dashed(trace[name])
    if trace["error"]:
        error = trace["error"]
        yield (
            "error",
            error["code"],
            visible(f"{error['title']}: {error.get('detail', '')} ({error['code']})"),
        )
    yield "size", trace["size"], f"{size(trace['size'])} ({grouped(trace['size'])} bytes)"
    yield "sha256", trace["sha256"], dashed(trace["sha256"])
    for name in _ORIGIN:
        if trace.get(name) is not None:
            yield name, trace[name], dashed(trace[name])
    if trace.get("selection") is not None:
        text = as_text(trace["selection"]) or "{}"
        yield "selection", text, visible(text)
    if trace["bounds"]:
        yield from _times(trace)
    yield from _contents(trace)
    for one in trace.get("ranks", []):
        text = _aligned(one)
        yield "merged_rank", text, visible(text)
    for remark in trace["health"].get("notes", []):
        yield from _noted(remark)


def damage(trace: dict[str, Any]) -> str | None:
    """What was refused and repaired, in a few words; None of a file that was read as it came."""
    health = trace["health"]
    lost = health.get("refused", 0)
    parts = [f"{grouped(lost)} refused"] if lost else []
    if not lost and any(remark["kind"] == "refused" for remark in health.get("notes", [])):
        parts.append("incomplete")
    if health.get("repaired"):
        parts.append(f"{grouped(health['repaired'])} repaired")
    return ", ".join(parts) or None


def lost(trace: dict[str, Any]) -> Iterator[str]:
    """Of what was refused and repaired, a line for each kind, and where it is first."""
    for remark in trace["health"].get("notes", []):
        if remark["kind"] != "oddity":
            places = [one["offset"] for one in remark["examples"] if one["offset"] is not None]
            where = f" First at byte {places[0]}." if places else ""
            yield f"{grouped(remark['count'])} {remark['kind']} ({remark['code']}): {remark['detail']}{where}"


def _aligned(rank: dict[str, Any]) -> str:
    """How a rank of a merged trace was put onto the common clock."""
    apart = rank["residual_ns"]
    said = f"{rank['rank']} shift {rank['shift_ns']} ns, {rank['collectives']} collectives"
    residual = f", residual {apart['median']}, {apart['p95']}, {apart['max']} ns" if apart else ""
    return f"{said}{residual}: {rank['name']}"


def _noted(remark: dict[str, Any]) -> Iterator[Fact]:
    """What was refused, repaired or odd, and below it the first places."""
    said = f"({remark['code']}) {remark['detail']}"
    yield remark["kind"], f"{remark['count']} {said}", f"{grouped(remark['count'])} {visible(said)}"
    for example in remark["examples"]:
        offset, text = example["offset"], example["text"] or ""
        place = [] if offset is None else [f"byte {offset}:"]
        exact = " ".join([*place, text])
        yield "example", exact, f"  {visible(exact)}"


def _times(trace: dict[str, Any]) -> Iterator[Fact]:
    start, end = trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]
    yield "duration_ns", end - start, f"{end - start} ({seconds(end - start)})"
    yield "start_ns", start, str(start)
    yield "end_ns", end, str(end)
    if trace["base_ns"] is not None:
        yield "base_ns", trace["base_ns"], str(trace["base_ns"])


def _contents(trace: dict[str, Any]) -> Iterator[Fact]:
    for name in ("in", "kept", "refused"):
        yield f"events_{name}", trace["events"][name], grouped(trace["events"][name])
    yield _listed("devices", [f"{d['id']} {d['name'] or ''}".rstrip() for d in trace["devices"]])
    yield _listed("streams", trace["streams"])
    yield _listed("steps", [step["name"] for step in trace["steps"]])
    yield _listed("processes", [f"{p['pid']} {p['labels'] or p['name'] or ''}".rstrip() for p in trace["processes"]])
    yield "threads", len(trace["threads"]), grouped(len(trace["threads"]))
    counts = sorted(trace["counts"].items(), key=lambda item: -item[1])
    yield _listed("counts", [f"{kind} {count}" for kind, count in counts], _MOST_COUNTS)


def _listed(name: str, values: list[str], most: int = 12) -> Fact:
    rest = len(values) - most
    text = ", ".join(map(visible, values[:most])) + (f", and {rest} more" if rest > 0 else "")
    return name, ",".join(values), text or "-"

"""Events restored from columns by the format's rule in plain Python, and ijson's reading of the same text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ijson
import pyarrow as pa

from service.formats.chrome_json.document import Document
from service.trace.summary import HealthReport
from tests.columns import Number, Object, parsed


def written_back(row: dict[str, Any]) -> Object:
    """Restore the event of a row: from `rest` alone if the row is verbatim, else from the columns and `rest`."""
    rest_members: Object = parsed(row["rest"]) if row["rest"] else Object()
    if row["verbatim"]:
        return rest_members
    members = [(key, row[key]) for key in ("ph", "cat", "name") if row[key] is not None]
    for key in ("pid", "tid", "id"):
        assert row[key] is None or row[f"{key}_text"] is None
        if row[key] is not None:
            members.append((key, Number(str(row[key]))))
        if row[f"{key}_text"] is not None:
            members.append((key, parsed(row[f"{key}_text"])))
    members += [
        (key, _time(row[f"{key}_ns"], row[f"{key}_digits"])) for key in ("ts", "dur") if row[f"{key}_ns"] is not None
    ]
    if row["args"] is not None:
        members.append(("args", parsed(row["args"])))
    return Object([*members, *rest_members])


def _time(ns: int, digits: int) -> Number:
    microseconds, part = divmod(abs(ns), 1000)
    assert part % 10 ** (3 - digits) == 0
    decimals = f".{part:03}"[: digits + 1] if digits else ""
    return Number(f"{'-' if ns < 0 else ''}{microseconds}{decimals}")


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[dict[str, Any]]:
    """The rows of columns, one after the other."""
    for batch in batches:
        yield from batch.to_pylist()


def plain(value: Any) -> Any:
    """Convert a parsed JSON value to that of ijson: the last of duplicate keys counts."""
    match value:
        case Object():
            return {key: plain(item) for key, item in value}
        case list():
            return [plain(item) for item in value]
        case Number():
            return int(value.text) if value.text.lstrip("-").isdigit() else Decimal(value.text)
        case _:
            return value


def by_ijson(document: bytes) -> tuple[list[Any], Any]:
    """Read a document with ijson: its events, which are the objects in its array, and its envelope."""
    (root,) = ijson.items(document, "")
    elements = root if isinstance(root, list) else root["traceEvents"]
    envelope: Any = [] if isinstance(root, list) else root | {"traceEvents": []}
    return [element for element in elements if isinstance(element, dict)], envelope


@dataclass
class Reading:
    """The service's reading of a document."""

    events: list[Object]
    envelope: bytes
    members: dict[str, Any]
    kept: int
    refused: int
    health: HealthReport

    @property
    def notes(self) -> dict[str, int]:
        """The count of each note."""
        return {note["code"]: note["count"] for note in self.health["notes"]}

    @property
    def offsets(self) -> dict[str, list[Any]]:
        """The offsets of each note's examples."""
        return {note["code"]: [example["offset"] for example in note["examples"]] for note in self.health["notes"]}


def read(text: bytes, *, chunk: int = 1 << 18) -> Reading:
    """Read a document in chunks of the given number of bytes."""
    return read_chunks(text[at : at + chunk] for at in range(0, len(text), chunk))


def read_chunks(chunks: Iterable[bytes]) -> Reading:
    """Read a document to its end, and check its report against its events."""
    document = Document(chunks, threads=2)
    rows = [row for events in document.events() for row in rows_of(events.batches)]
    envelope, members = document.envelope()
    report = document.health.as_dict(refused=document.refused)
    assert len(rows) == document.kept
    assert report["refused"] == document.refused
    assert report["repaired"] == sum(note["count"] for note in report["notes"] if note["kind"] == "repaired")
    around = parsed(envelope)
    assert around == [] or dict(around)["traceEvents"] == []
    return Reading([*map(written_back, rows)], envelope, members, document.kept, document.refused, report)

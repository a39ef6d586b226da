"""Renumbering of a rank's events for a merge, so that ids of different inputs do not collide.

The digits of the input's index are appended to flow ids, correlations and External ids. Processes get new pids. Times
are shifted to the common clock.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.store.columns import with_ranks
from service.store.parts import METADATA, Flags, Part, Tracks
from service.streaming.words import word_column
from service.trace.summary import Key
from service.trace.text import Members, Number, read, written
from service.trace.time import decimal, decimals_of

KEPT_PIDS = 100
"""Pids below this number are devices; their new pids end with the old digits."""

_IDS = ("correlation", "External id", "external id")
_ZERO = r'("(?:correlation|[Ee]xternal id)"\s*:\s*)0(\s*[,}])'
_OTHER = r'("(?:correlation|[Ee]xternal id)"\s*:\s*-?[1-9][0-9]*)(\s*[,}])'
_NESTED = r"^.[^{]*\{"  # a second brace, which may open an inner object
_WHOLE = 10**18  # columns hold integers of this size or more as text


def new_pids(pids: Iterable[Iterable[Key]]) -> list[dict[Key, int]]:
    """Return for each rank a mapping from its pids to new pids; the new pids are unique among all ranks."""
    ranks = [sorted(set(keys), key=lambda pid: (isinstance(pid, str), pid)) for keys in pids]
    stride = 10 ** len(str(KEPT_PIDS + max(map(len, ranks), default=0)))
    mappings: list[dict[Key, int]] = []
    for place, keys in enumerate(ranks):
        kept = [pid for pid in keys if isinstance(pid, int) and 0 <= pid < KEPT_PIDS]
        others = [pid for pid in keys if pid not in kept]
        numbers = {pid: pid for pid in kept} | {pid: KEPT_PIDS + at for at, pid in enumerate(others)}
        mappings.append({pid: (place + 1) * stride + number for pid, number in numbers.items()})
    return mappings


def process_names(title: str, processes: Iterable[Mapping[str, Any]], devices: Iterable[int]) -> dict[Key, str]:
    """Return a name for each process of an input of a rank, by pid; the name begins with the input's title."""
    names: dict[Key, str] = {}
    for process in processes:
        label = process["labels"] or ""
        own = label if label.startswith("GPU") else process["name"]
        names.setdefault(process["pid"], f"{title} · {own or _default_name(process['pid'], devices)}")
    return names


def _default_name(pid: Key, devices: Iterable[int]) -> str:
    """Return the name of a process that has none."""
    if isinstance(pid, str):
        return pid or "no process"
    return f"GPU {pid}" if pid in devices else f"process {pid}"


class RankRenumberer:
    """Renumbers the events of an input of a rank.

    Args:
        rank: the rank of the events; None for those of an input beside the rank's trace.
        title: the title of the input, such as ``rank 3``.
        place: the input's index among all inputs.
        count: number of inputs.
        pids: the new pid of each of the input's pids.
        names: the names of the input's processes by old pid.
        shift_ns: ns to add to the input's times.
    """

    def __init__(
        self,
        rank: int | None,
        title: str,
        place: int,
        count: int,
        pids: Mapping[Key, int],
        names: Mapping[Key, str],
        shift_ns: int,
    ) -> None:
        self._rank = rank
        self._title = title
        self._digits = len(str(count - 1))
        self._factor, self._place = 10**self._digits, place
        self._pids = pids
        self._names = names
        self._shift = shift_ns
        self._tracks = Tracks()
        self._ranks = {} if rank is None else dict.fromkeys(pids.values(), rank)

    def renumber(self, table: pa.Table) -> pa.Table:
        """Return the events with their new ids, times and rank."""
        part = Part(0, 0, table)
        self._tracks = Tracks()  # a new one, because it caches by part index, and each table is part 0
        tracks = self._tracks.of(part)
        pids = np.array([self._pids[pid] for pid, _ in self._tracks.keys], np.int64)[tracks]
        in_rest = table["verbatim"].to_numpy() | (part.has("rest") & ~part.has("pid") & ~part.has("pid_text"))
        changed: dict[str, pa.Array] = {
            "pid": pa.array(pids),
            "pid_text": pa.nulls(len(table), table.schema.field("pid_text").type),
            "id": self._numbers(part, "id"),
            "id_text": self._texts(part),
            "correlation": self._numbers(part, "correlation"),
            "external_id": self._numbers(part, "external_id"),
            "args": self._args(part),
            **self._times(part),
        }
        if in_rest.any():
            changed["rest"] = self._rests(part, np.flatnonzero(in_rest), pids)
        for name, values in changed.items():
            index = table.schema.get_field_index(name)
            kind = table.schema.field(index)
            table = table.set_column(index, kind, values.cast(kind.type) if values.type != kind.type else values)
        return with_ranks(table, self._ranks)

    def naming_events(self, missing: Iterable[Key], schema: pa.Schema) -> pa.Table:
        """Return metadata events that name the given processes."""
        rows = [
            {
                "position": 0, "ph": "M", "name": "process_name", "pid": self._pids[pid], "tid": 0,
                "args": json.dumps({"name": self._names[pid]}), "verbatim": False, "rank": self._rank,
            }
            for pid in missing
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, schema)

    def _number(self, value: int) -> int:
        return int(value * self._factor + (self._place if value >= 0 else -self._place))

    def _numbers(self, part: Part, column: str) -> pa.Array:
        values = part.ints(column)
        valid = part.has(column) & ~self._overflows(values)
        return pa.array(values * self._factor + np.where(values >= 0, self._place, -self._place), mask=~valid)

    def _overflows(self, values: npt.NDArray[Any]) -> Flags:
        """Flag the numbers whose new value is too large for a column of integers."""
        limit = _WHOLE // self._factor
        flags: Flags = (values >= limit) | (values <= -limit)
        return flags

    def _texts(self, part: Part) -> pa.Array:
        """Return the new column ``id_text``: strings, fractional numbers, and integers too large for ``id``."""
        codes, words = part.coded("id_text")
        texts = [self._text(word) for word in words]
        ids = part.ints("id")
        large = np.flatnonzero(part.has("id") & self._overflows(ids))
        if len(large):
            codes = codes.copy()
            codes[large] = np.arange(len(texts), len(texts) + len(large))
            texts += [str(self._number(int(number))) for number in ids[large]]
        kind = part.table.schema.field("id_text").type
        return word_column(codes, codes >= 0, texts).cast(kind)

    def _text(self, word: str) -> str:
        suffix = f"{self._place:0{self._digits}}"
        if word.startswith('"'):
            return f'{word[:-1]}.{suffix}"'
        if not word.lstrip("-").isdigit():
            return f'"{word}.{suffix}"'
        return word + suffix if word.strip("-0") else str(self._place)

    def _args(self, part: Part) -> pa.Array:
        """Return the arguments, with the same new ids as the columns."""
        args = part.table["args"].combine_chunks()
        naming = part.which("ph", METADATA) & part.which("name", {"process_name"}.__contains__)
        if naming.any():
            pids = [pid for pid, _ in (self._tracks.keys[track] for track in self._tracks.of(part)[naming].tolist())]
            pairs = zip(args.filter(pa.array(naming)).to_pylist(), pids, strict=True)
            args = pc.replace_with_mask(
                args, naming, pa.array([self._named(text, pid) for text, pid in pairs], args.type)
            )
        with_ids = part.has("correlation") | part.has("external_id")
        if not with_ids.any():
            return args
        originals = args.filter(pa.array(with_ids))
        texts = pc.replace_substring_regex(originals, _OTHER, rf"\1{self._place:0{self._digits}}\2")
        texts = pc.replace_substring_regex(texts, _ZERO, rf"\1{self._place}\2")
        nested = pc.match_substring_regex(originals, _NESTED).fill_null(False)
        if nested.true_count:  # the patterns also match these keys in inner objects, where they are not ids
            exact = [written(self._arguments(read(text))) for text in originals.filter(nested).to_pylist()]
            texts = pc.replace_with_mask(texts, nested, pa.array(exact, texts.type))
        return pc.replace_with_mask(args, with_ids, texts)

    def _named(self, args: str | None, pid: Key) -> str:
        """Return the arguments of an event that names a process, with its new name."""
        arguments = read(args) if args else Members()
        members = arguments if isinstance(arguments, Members) else Members()
        name = self._names.get(pid) or f"{self._title} · {dict(members).get('name', pid)}"
        return written(Members([("name", name), *((key, value) for key, value in members if key != "name")]))

    def _times(self, part: Part) -> dict[str, pa.Array]:
        has_time = part.has("ts_ns")
        times = part.ints("ts_ns") + self._shift
        has_digits = part.has("ts_digits")
        digits = np.maximum(part.ints("ts_digits"), decimals_of(self._shift))
        return {
            "ts_ns": pa.array(times, mask=~has_time),
            "ts_digits": pa.array(digits.astype(np.int8), mask=~has_digits),
        }

    def _rests(self, part: Part, rows: npt.NDArray[Any], pids: npt.NDArray[Any]) -> pa.Array:
        """Return the column ``rest`` with new values in the given rows, which hold a whole event or a malformed pid."""
        rest = part.table["rest"].combine_chunks()
        is_whole, tracks = part.table["verbatim"].to_numpy(), self._tracks.of(part)
        naming = part.which("ph", METADATA) & part.which("name", {"process_name"}.__contains__)
        texts: list[str | None] = []
        for row, text in zip(rows.tolist(), rest.take(pa.array(rows)).to_pylist(), strict=True):
            event = [(key, value) for key, value in read(text) if key != "pid"]
            if not is_whole[row]:
                texts.append(written(Members(event)) if event else None)
                continue
            time = int(part.ints("ts_ns")[row]) + self._shift
            changed = Members([("pid", Number(pids[row]))])
            if naming[row] and "args" not in dict(event):
                event.append(("args", Members()))
            for key, value in event:
                if key == "ts" and part.has("ts_ns")[row]:
                    changed.append((key, Number(decimal(time, decimals_of(time)))))
                elif key == "id" and isinstance(value, str):  # includes `Number`, a subclass
                    changed.append((key, read(self._text(written(value)))))
                elif key == "args" and naming[row]:
                    changed.append((key, read(self._named(written(value), self._tracks.keys[tracks[row]][0]))))
                elif key == "args" and isinstance(value, Members):
                    changed.append((key, self._arguments(value)))
                else:
                    changed.append((key, value))
            texts.append(written(changed))
        mask: Flags = np.zeros(len(part), np.bool_)
        mask[rows] = True
        return pc.replace_with_mask(rest, mask, pa.array(texts, rest.type))

    def _arguments(self, members: Members) -> Members:
        return Members((name, self._argument(name, item)) for name, item in members)

    def _argument(self, name: str, value: Any) -> Any:
        is_id = name in _IDS and isinstance(value, Number) and value.lstrip("-").isdigit()
        return Number(self._number(int(value))) if is_id else value

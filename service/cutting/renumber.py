"""The events of a rank, as they stand beside those of other ranks: no id means two things.

A number by which events belong together, the id of an arrow, a correlation or an External id, gets the rank's place as
more digits at its end; a process gets a new pid; times move to the common clock.
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
from service.trace.summary import Key
from service.trace.text import Members, Number, read, written
from service.trace.time import decimal, decimals_of

KEPT_PIDS = 100
"""Pids below this, which are devices, are the last digits of the new ones."""

_IDS = ("correlation", "External id", "external id")
_ZERO = r'("(?:correlation|[Ee]xternal id)"\s*:\s*)0(\s*[,}])'
_OTHER = r'("(?:correlation|[Ee]xternal id)"\s*:\s*-?[1-9][0-9]*)(\s*[,}])'
_NESTED = r"^.[^{]*\{"  # an object within an object
_WHOLE = 10**18  # integers from here on are text, in the columns of any trace


def new_pids(pids: Iterable[Iterable[Key]]) -> list[dict[Key, int]]:
    """New pids for those of each rank, none twice."""
    each = [sorted(set(one), key=lambda pid: (isinstance(pid, str), pid)) for one in pids]
    stride = 10 ** len(str(KEPT_PIDS + max(map(len, each), default=0)))
    found: list[dict[Key, int]] = []
    for place, keys in enumerate(each):
        kept = [pid for pid in keys if isinstance(pid, int) and 0 <= pid < KEPT_PIDS]
        others = [pid for pid in keys if pid not in kept]
        numbers = {pid: pid for pid in kept} | {pid: KEPT_PIDS + at for at, pid in enumerate(others)}
        found.append({pid: (place + 1) * stride + number for pid, number in numbers.items()})
    return found


def process_names(rank: int, processes: Iterable[Mapping[str, Any]], devices: Iterable[int]) -> dict[Key, str]:
    """What each process of a rank is called beside those of other ranks."""
    names: dict[Key, str] = {}
    for one in processes:
        label = one["labels"] or ""
        own = label if label.startswith("GPU") else one["name"]
        names.setdefault(one["pid"], f"rank {rank} · {own or _called(one['pid'], devices)}")
    return names


def _called(pid: Key, devices: Iterable[int]) -> str:
    """What a process without a name is called."""
    if isinstance(pid, str):
        return pid or "no process"
    return f"GPU {pid}" if pid in devices else f"process {pid}"


class Renumbered:
    """Makes the events of a rank such.

    Args:
        rank: which.
        place: of the rank among `count`.
        count: how many ranks there are.
        pids: its new pids.
        names: of its processes.
        shift_ns: what to add to its times.
    """

    def __init__(
        self, rank: int, place: int, count: int, pids: Mapping[Key, int], names: Mapping[Key, str], shift_ns: int
    ) -> None:
        self._rank = rank
        self._digits = len(str(count - 1))
        self._factor, self._place = 10**self._digits, place
        self._pids = pids
        self._names = names
        self._shift = shift_ns
        self._tracks = Tracks()
        self._ranks = dict.fromkeys(pids.values(), rank)

    def table(self, table: pa.Table) -> pa.Table:
        """The events with other numbers, and with their rank."""
        part = Part(0, 0, table)
        self._tracks = Tracks()  # it remembers parts by their index
        tracks = self._tracks.of(part)
        pids = np.array([self._pids[pid] for pid, _ in self._tracks.keys], np.int64)[tracks]
        own_text = table["verbatim"].to_numpy() | (part.has("rest") & ~part.has("pid") & ~part.has("pid_text"))
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
        if own_text.any():
            changed["rest"] = self._rests(part, np.flatnonzero(own_text), pids)
        for name, values in changed.items():
            place = table.schema.get_field_index(name)
            kind = table.schema.field(place)
            table = table.set_column(place, kind, values.cast(kind.type) if values.type != kind.type else values)
        return with_ranks(table, self._ranks)

    def names(self, missing: Iterable[Key], schema: pa.Schema) -> pa.Table:
        """Events that name processes which no event names."""
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
        told = part.has(column) & ~self._outgrows(values)
        return pa.array(values * self._factor + np.where(values >= 0, self._place, -self._place), mask=~told)

    def _outgrows(self, values: npt.NDArray[Any]) -> Flags:
        """Which numbers become larger than the columns have them."""
        most = _WHOLE // self._factor
        flags: Flags = (values >= most) | (values <= -most)
        return flags

    def _texts(self, part: Part) -> pa.Array:
        """Ids that are no integers: strings, and numbers that are none or too large."""
        codes, words = part.coded("id_text")
        texts = [self._text(word) for word in words]
        ids = part.ints("id")
        large = np.flatnonzero(part.has("id") & self._outgrows(ids))
        if len(large):
            codes = codes.copy()
            codes[large] = np.arange(len(texts), len(texts) + len(large))
            texts += [str(self._number(int(number))) for number in ids[large]]
        kind = part.table.schema.field("id_text").type
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32(), mask=codes < 0), pa.array(texts, pa.string())
        ).cast(kind)

    def _text(self, word: str) -> str:
        suffix = f"{self._place:0{self._digits}}"
        if word.startswith('"'):
            return f'{word[:-1]}.{suffix}"'
        if not word.lstrip("-").isdigit():
            return f'"{word}.{suffix}"'
        return word + suffix if word.strip("-0") else str(self._place)

    def _args(self, part: Part) -> pa.Array:
        """The arguments, with their ids told as the columns tell them."""
        args = part.table["args"].combine_chunks()
        naming = part.which("ph", METADATA) & part.which("name", {"process_name"}.__contains__)
        if naming.any():
            pids = [pid for pid, _ in (self._tracks.keys[track] for track in self._tracks.of(part)[naming].tolist())]
            told = zip(args.filter(pa.array(naming)).to_pylist(), pids, strict=True)
            args = pc.replace_with_mask(
                args, naming, pa.array([self._named(text, pid) for text, pid in told], args.type)
            )
        chosen = part.has("correlation") | part.has("external_id")
        if not chosen.any():
            return args
        came = args.filter(pa.array(chosen))
        texts = pc.replace_substring_regex(came, _OTHER, rf"\1{self._place:0{self._digits}}\2")
        texts = pc.replace_substring_regex(texts, _ZERO, rf"\1{self._place}\2")
        nested = pc.match_substring_regex(came, _NESTED).fill_null(False)
        if nested.true_count:  # the same keys further inside mean something else
            each = [written(self._arguments(read(text))) for text in came.filter(nested).to_pylist()]
            texts = pc.replace_with_mask(texts, nested, pa.array(each, texts.type))
        return pc.replace_with_mask(args, chosen, texts)

    def _named(self, args: str | None, pid: Key) -> str:
        """The arguments of an event that names a process, with the name that it gets."""
        told = read(args) if args else Members()
        members = told if isinstance(told, Members) else Members()
        name = self._names.get(pid) or f"rank {self._rank} · {dict(members).get('name', pid)}"
        return written(Members([("name", name), *((key, value) for key, value in members if key != "name")]))

    def _times(self, part: Part) -> dict[str, pa.Array]:
        has = part.has("ts_ns")
        times = part.ints("ts_ns") + self._shift
        known = part.has("ts_digits")
        digits = np.maximum(part.ints("ts_digits"), decimals_of(self._shift))
        return {
            "ts_ns": pa.array(times, mask=~has),
            "ts_digits": pa.array(digits.astype(np.int8), mask=~known),
        }

    def _rests(self, part: Part, rows: npt.NDArray[Any], pids: npt.NDArray[Any]) -> pa.Array:
        """The rest, where it is all of an event with those changes too, or has a pid that is none."""
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
                elif key == "id" and isinstance(value, str):  # or a number
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

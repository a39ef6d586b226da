"""Lines of a document: events that have their ids, lanes and times, and whose text any thread can write."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from service.rendering.sanitizing import containing, sanitized, suspects
from service.rendering.text import CHANGED, COPIED, ESSENTIAL, PackedTexts, write_lines
from service.store.parts import Flags, Ints
from service.streaming.processors import processor_count

_COLLECTIVE = b'"Collective name"'


@dataclass(frozen=True)
class Lines:
    """Events of a document, one a line.

    Attributes:
        words: the texts of phases, categories, names and other members, each with the index of each event's text.
        numbers: rows of pid, tid, ts, dur and id; times in ns.
        has: flags of the numbers that are present, in rows like `numbers`.
        args: the arguments of each event, as JSON.
        modes: the mode of each event: `NO_ARGS`, `COPIED`, `ESSENTIAL` or `LEFT_OUT`; collectives keep all arguments
            where others keep essential ones.
        counters: the arguments of counters, as JSON, by row.
        essential: rows of the values of `ESSENTIAL_COLUMNS`.
        known: flags of the values that are present, in rows like `essential`.
    """

    words: list[tuple[PackedTexts, Ints]]
    numbers: Ints
    has: Flags
    args: pa.StringArray
    modes: Ints
    counters: Mapping[int, str]
    essential: Ints
    known: Flags

    def text(self) -> bytes:
        """Return the text, each event after a comma and a line break."""
        texts = PackedTexts.in_array(self.args)
        modes = self.modes.copy()
        if (is_essential := modes == ESSENTIAL).any():
            modes[is_essential & containing(texts.values, texts.starts, _COLLECTIVE)] = COPIED
        harmful = suspects(texts.values, texts.starts, modes == COPIED).tolist()
        changed = {row: sanitized(self.args[row].as_py()) for row in harmful} | {**self.counters}
        modes[np.array([*changed], np.int64)] = np.arange(CHANGED, CHANGED + len(changed))
        changed_texts = PackedTexts.of([text.encode() for text in changed.values()])
        return write_lines(self.words, self.numbers, self.has, texts, changed_texts, modes, self.essential, self.known)


def texts_of(blocks: Iterable[Lines]) -> Iterator[bytes]:
    """Yield the text of each block, in order; threads write the next ones meanwhile."""
    count = processor_count()
    with ThreadPoolExecutor(count, "lines") as threads:
        texts = deque[Future[bytes]]()
        for block in blocks:
            texts.append(threads.submit(block.text))
            if len(texts) > count:
                yield texts.popleft().result()
        for text in texts:
            yield text.result()

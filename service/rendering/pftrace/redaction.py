"""Redaction of the secrets in a trace's columns; its result has the texts that a redacted document has."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.trace.secrets import SUSPECT, redacted_json, redacted_text
from service.trace.summary import Summary

_TEXTS = ("cat", "name")
_JSON_WORDS = ("pid_text", "tid_text", "id_text")


def redacted_table(table: pa.Table) -> pa.Table:
    """Return events without their secrets."""
    table = table.unify_dictionaries().combine_chunks()
    for name in _TEXTS:
        table = _replaced(table, name, _of_words(table[name], redacted_text))
    for name in _JSON_WORDS:
        table = _replaced(table, name, _of_words(table[name], redacted_json))
    for name in ("args", "rest"):
        table = _replaced(table, name, _of_texts(table[name]))
    return table


def redacted_summary(summary: Summary) -> Summary:
    """Return a summary whose names of processes and threads have no secrets."""
    return replace(summary, processes=_redacted(summary.processes), threads=_redacted(summary.threads))


def _redacted(named: Sequence[Any]) -> list[Any]:
    return [
        {key: redacted_text(value) if isinstance(value, str) else value for key, value in entry.items()}
        for entry in named
    ]


def _of_words(column: pa.ChunkedArray, redact: Callable[[str], str]) -> pa.Array:
    words = column.combine_chunks()
    return pa.DictionaryArray.from_arrays(
        words.indices, pa.array([redact(word) for word in words.dictionary.to_pylist()], pa.string())
    )


def _of_texts(column: pa.ChunkedArray) -> pa.Array:
    texts = column.combine_chunks()
    suspect = pc.match_substring_regex(texts, SUSPECT).fill_null(False)
    if not pc.any(suspect).as_py():
        return texts
    return pc.replace_with_mask(
        texts, suspect, pa.array(map(redacted_json, texts.filter(suspect).to_pylist()), pa.string())
    )


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), column)

"""Files that keep the answers that pages show about whole traces, next to the columns of the trace."""

import hashlib
import io
import logging
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import orjson
import pyarrow as pa

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.question import Parameters, Question, Tables
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.analysis.timeline_file import keep_timeline
from service.store.folder import ANSWERS, new_file
from service.trace.errors import AnalysisError, DiskFull

log = logging.getLogger(__name__)

KEPT = ("temporal_breakdown", "steps", "recommendations", "collectives", "idle_breakdown", "kernel_breakdown")
"""Names of the questions that the pages of a trace and of a run ask at once. Only answers without options are kept."""

SIZE_MAX = 16 << 20
"""Maximum bytes of the tables of an answer that is kept."""

_SOURCES = Path(__file__).parents[1]
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


def kept_answer(scope: Scope, question: Question, parameters: Parameters, tables: Collection[str] = ()) -> Tables | str:
    """Return the tables of a rank, or the reason why there are none: from the file, or computed and then kept.

    Args:
        scope: scope of the rank.
        question: the question.
        parameters: its parameters.
        tables: names of the tables that are needed, if not all are. The answer may have others.
    """
    if question.name not in KEPT or scope.is_selection or parameters != question.parameters():
        return _computed(scope, question, parameters, tables)
    if (answer := read_answer(scope.columns, scope.rank, question)) is None:
        answer = _computed(scope, question, parameters)
        if isinstance(answer, str) or sum(table.nbytes for table in answer.values()) <= SIZE_MAX:
            with suppress(DiskFull, OSError):  # such as a trace that was deleted meanwhile
                _write(scope.columns / answer_file(question), _key(scope.rank), answer)
    return answer


def answer_file(question: Question) -> str:
    """Return the name of the file of a question's answer, in the folder of the columns."""
    return f"{ANSWERS}/{question.name}.arrow"


def read_answer(columns: Path, rank: int | None, question: Question) -> Tables | str | None:
    """Return what a file has of the answer about a rank; None if there is none, or if other code wrote it."""
    return _read(columns / answer_file(question), _key(rank))


def _key(rank: int | None) -> str:
    return f"{code_digest()} rank {rank}"


def _computed(scope: Scope, question: Question, parameters: Parameters, tables: Collection[str] = ()) -> Tables | str:
    if reason := question.reason_against(scope):
        return reason
    if tables and question.answer_part:
        return question.answer_part(scope, parameters, tables)
    return question.answer(scope, parameters)


def exchanged_tables(scope: Scope, question: Question) -> Tables:
    """Return the tables of a rank that a question needs in addition if there are several ranks; see `exchange`."""
    if question.exchange is None:
        return {}
    other = QUESTIONS[question.exchange]
    answer = kept_answer(scope, other, other.parameters())
    return {} if isinstance(answer, str) else answer


def keep_answers(trace: AnalysisInput, readings: ReadingCache) -> int:
    """Keep the timeline and the answers about a trace of one rank; return the number of questions that have tables."""
    if trace.summary.ranks:
        return 0
    answered = 0
    with readings.of(trace) as reading, scope_of(reading) as scope:
        with suppress(AnalysisError):  # the next request gets the same error
            keep_timeline(scope)
        for question in map(QUESTIONS.__getitem__, KEPT):
            with suppress(AnalysisError):  # likewise
                answered += not isinstance(kept_answer(scope, question, question.parameters()), str)
    return answered


def _read(path: Path, key: str) -> Tables | str | None:
    """Return the answer in a file; None if there is none, or if other code wrote it."""
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("an answer is computed again: %s can't be read: %s", path, error)
        return None
    if hashlib.sha256(content).hexdigest().encode() != digest:
        log.warning("an answer is computed again: %s is damaged", path)
        return None
    header_text, _, body = content.partition(b"\n")
    header = orjson.loads(header_text)
    if header["key"] != key:
        return None
    reason: str | None = header["reason"]
    stream = pa.BufferReader(body)
    return reason or {name: pa.ipc.open_stream(stream).read_all() for name in header["tables"]}


def _write(path: Path, key: str, answer: Tables | str) -> None:
    reason, tables = (answer, {}) if isinstance(answer, str) else (None, answer)
    body = io.BytesIO()
    for table in tables.values():
        with pa.ipc.new_stream(body, table.schema, options=_COMPRESSED) as stream:
            stream.write_table(table)
    content = orjson.dumps({"key": key, "reason": reason, "tables": [*tables]}) + b"\n" + body.getvalue()
    path.parent.mkdir(exist_ok=True)
    with new_file(path, durable=False) as file:  # a damaged file is noticed
        file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


@cache
def code_digest() -> str:
    """Return a digest of the service's code and its libraries, because a change of any may change an answer."""
    digest = hashlib.sha256(" ".join(map(version, ("duckdb", "numba", "numpy", "pyarrow"))).encode())
    for source in sorted(_SOURCES.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]

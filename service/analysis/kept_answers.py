"""Files with the answers that pages show of whole traces. They are written once, next to the columns of the trace."""

import hashlib
import io
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import orjson
import pyarrow as pa

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.question import Parameters, Question, Tables
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.store.folder import ANSWERS, new_file
from service.trace.errors import AnalysisError, DiskFull

log = logging.getLogger(__name__)

KEPT = ("temporal_breakdown", "steps", "recommendations", "collectives", "idle_breakdown", "kernel_breakdown")
"""Names of the questions that the pages of a trace and of a run ask at once. Only answers without options are kept."""

SIZE_MAX = 16 << 20
"""Maximum bytes of the tables of an answer that is kept."""

_SOURCES = Path(__file__).parents[1]
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


def kept_answer(scope: Scope, question: Question, parameters: Parameters) -> Tables | str:
    """Return the tables of a rank, or the reason why there are none: from the file, or computed and then kept."""

    def compute() -> Tables | str:
        return question.inapplicable_reason(scope) or question.answer(scope, parameters)

    return _kept(scope, question.name, compute) if _is_kept(scope, question, parameters) else compute()


def kept_exchange(scope: Scope, question: Question, parameters: Parameters) -> Tables:
    """Return the tables of `Question.exchange` of a rank: from the file, or computed and then kept."""
    if question.exchange is None:
        return {}
    exchange = question.exchange
    if not _is_kept(scope, question, parameters):
        return exchange(scope, parameters)
    tables = _kept(scope, f"{question.name}.exchange", lambda: exchange(scope, parameters))
    return {} if isinstance(tables, str) else tables


def keep_answers(trace: AnalysisInput, readings: ReadingCache) -> int:
    """Keep the answers about a trace of one rank; return the number of questions that are answered."""
    if trace.summary.ranks:
        return 0
    answered = 0
    with readings.of(trace) as reading, scope_of(reading) as scope:
        for question in map(QUESTIONS.__getitem__, KEPT):
            with suppress(AnalysisError):  # who asks later gets the same error
                if not isinstance(kept_answer(scope, question, question.parameters()), str):
                    kept_exchange(scope, question, question.parameters())
                    answered += 1
    return answered


def _is_kept(scope: Scope, question: Question, parameters: Parameters) -> bool:
    return question.name in KEPT and not scope.is_selection and parameters == question.parameters()


def _kept(scope: Scope, name: str, compute: Callable[[], Tables | str]) -> Tables | str:
    path = scope.columns / ANSWERS / f"{name}.arrow"
    key = f"{code_digest()} rank {scope.rank}"
    if (answer := _read(path, key)) is None:
        answer = compute()
        if isinstance(answer, str) or sum(table.nbytes for table in answer.values()) <= SIZE_MAX:
            with suppress(DiskFull, OSError):  # such as a trace that was deleted meanwhile
                _write(path, key, answer)
    return answer


def _read(path: Path, key: str) -> Tables | str | None:
    """Return the answer in a file; None if there is none, or if other code wrote it."""
    try:
        with path.open("rb") as file:
            header, body = orjson.loads(file.readline()), file.read()
        if header["key"] != key:
            return None
        reason: str | None = header["reason"]
        stream = _whole(body, header["sha256"])
        return reason or {name: pa.ipc.open_stream(stream).read_all() for name in header["tables"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        log.warning("the answer is computed again, for its file %s can't be read: %s", path.name, error)
        return None


def _whole(body: bytes, sha256: str) -> pa.BufferReader:
    """Return a reader of a body; raises `ValueError` if the body does not have the digest."""
    if hashlib.sha256(body).hexdigest() != sha256:
        raise ValueError("it is damaged")
    return pa.BufferReader(body)


def _write(path: Path, key: str, answer: Tables | str) -> None:
    reason, tables = (answer, {}) if isinstance(answer, str) else (None, answer)
    body = io.BytesIO()
    for table in tables.values():
        with pa.ipc.new_stream(body, table.schema, options=_COMPRESSED) as stream:
            stream.write_table(table)
    digest = hashlib.sha256(body.getvalue()).hexdigest()
    header = orjson.dumps({"key": key, "reason": reason, "tables": [*tables], "sha256": digest})
    path.parent.mkdir(exist_ok=True)
    with new_file(path, durable=False) as file:  # a damaged file is noticed
        file.write(header + b"\n" + body.getvalue())


@cache
def code_digest() -> str:
    """Return a digest of the service's code, because a change of any of it may change an answer."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]

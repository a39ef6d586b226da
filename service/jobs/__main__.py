"""Compiles machine code ahead of its first use: reads sample traces, and answers all questions about them.

Run it as ``python -m service.jobs``.
"""

import io
import tempfile
from contextlib import closing
from pathlib import Path

from service.analysis.answers import answer_question, parameters_of
from service.analysis.catalogue import QUESTIONS
from service.analysis.names import OF_SNAPSHOTS
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.jobs.ingest import ingest
from service.jobs.sample import SAMPLE, SNAPSHOT_SAMPLE

_SAMPLES = {"trace": SAMPLE, "snapshot": SNAPSHOT_SAMPLE}


def main() -> None:
    """Read the sample traces and answer all questions about them."""
    with tempfile.TemporaryDirectory() as scratch:
        trace, snapshot = (_read(sample, Path(scratch, name)) for name, sample in _SAMPLES.items())
        with closing(ReadingCache(Path(scratch, "spill"))) as readings:
            for question in QUESTIONS.values():
                sample = snapshot if question.name in OF_SNAPSHOTS else trace
                answer_question(question, parameters_of(question, {}), [sample] * question.min_traces, readings)


def _read(sample: bytes, columns: Path) -> AnalysisInput:
    return AnalysisInput(columns, ingest(io.BufferedReader(io.BytesIO(sample)), columns, "compile", lambda _: None))


if __name__ == "__main__":
    main()

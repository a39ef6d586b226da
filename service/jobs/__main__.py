"""Compiles machine code ahead of its first use: reads a sample trace, and answers all questions about it.

Run it as ``python -m service.jobs``.
"""

import io
import tempfile
from contextlib import closing
from pathlib import Path

from service.analysis.answers import answer_question, parameters_of
from service.analysis.catalogue import QUESTIONS
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.jobs.ingest import ingest
from service.jobs.sample import SAMPLE


def main() -> None:
    """Read the sample trace and answer all questions about it."""
    with tempfile.TemporaryDirectory() as scratch:
        columns = Path(scratch, "columns")
        summary = ingest(io.BufferedReader(io.BytesIO(SAMPLE)), columns, "compile.json", lambda _: None)
        trace = AnalysisInput(columns, summary)
        with closing(ReadingCache(Path(scratch, "spill"))) as readings:
            for question in QUESTIONS.values():
                answer_question(question, parameters_of(question, {}), [trace] * question.min_traces, readings)


if __name__ == "__main__":
    main()

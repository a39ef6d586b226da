"""Loads the machine code of compiled functions, or compiles it, by reading samples and answering questions about them.

Without this, the first ingest and the first answer of each process would take longer.
"""

import io
import tempfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.names import OF_SNAPSHOTS
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.binding import prepare_binding
from service.jobs.ingest import ingest
from service.jobs.sample import EXPORT_SAMPLE, SAMPLE, SNAPSHOT_SAMPLE
from service.store.packed_events import prepare_packing


def load_machine_code(questions: Collection[str] = ()) -> None:
    """Load the code of ingests and of cuts, and that of the answers to some questions.

    Args:
        questions: names of the questions.
    """
    prepare_packing()
    prepare_binding()
    with tempfile.TemporaryDirectory() as scratch:
        samples = {"trace": SAMPLE, "snapshot": SNAPSHOT_SAMPLE, "export": EXPORT_SAMPLE}
        read = {name: _read(sample, Path(scratch, name)) for name, sample in samples.items()}
        with closing(ReadingCache(Path(scratch, "spill"))) as readings:
            for question in map(question_of, questions):
                trace = read["snapshot" if question.name in OF_SNAPSHOTS else "trace"]
                answer_question(question, parameters_of(question, {}), [trace] * question.min_traces, readings)


def _read(sample: bytes, columns: Path) -> AnalysisInput:
    return AnalysisInput(columns, ingest(io.BufferedReader(io.BytesIO(sample)), columns, "sample", lambda _: None))

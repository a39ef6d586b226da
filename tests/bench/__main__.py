"""Wall time, megabytes of JSON and events per second, and memory of each step, which runs alone on the machine."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from service.engine.trace_processor.provision import engine_path
from service.settings import Settings
from service.streaming.codec import plain_chunks
from tests.bench.analyses import HTA, OURS, RANKS, measure_analyses, measure_hta, measure_ranks
from tests.bench.cutting import FILTER, MERGE, PARTS, STEPS, STREAM, WINDOW, measure_cutting, measure_merge
from tests.bench.engine import ARROW, ESSENTIAL, IDLE, ROWS, SESSION, WINDOWED, measure_engine
from tests.bench.figures import IJSON, PASS, STREAMS, Row, run_alone, served, settle, timed
from tests.bench.formats import measure_formats
from tests.bench.growth import measure_growth
from tests.bench.ingests import ENGINE, INGEST, measure_ingests
from tests.bench.pages import PAGE, SCREENS
from tests.bench.splits import measure_splits
from tests.bench.starts import measure_starts
from tests.bench.uploads import measure_uploads
from tests.traces import TraceShape, sized, write_trace

LIMIT = "decompress alone"
_PARTIAL = ("SQL", "1 %", "one stream", "the same", MERGE, WINDOWED, IDLE, HTA, RANKS, PAGE)
"""Starts of the names of steps that do not read the whole trace, and so have no rate."""
APART = {"uploads": measure_uploads, "formats": measure_formats, "splits": measure_splits, "starts": measure_starts}
"""Parts that measure files of their own, or none; each returns its table as text."""
ON_REQUEST = {"growth": measure_growth}
"""Likewise, but only if they are asked for: they take ten minutes and gigabytes of disk."""
_GUNZIP = "from service.streaming.codec import plain_chunks as p; import sys\nfor c in p(open(sys.argv[1], 'rb')): pass"


def measure(trace: Path, data: Path, only: str | None) -> tuple[list[Row], int, int]:
    """Measure all rows, or those of one part; return them, the number of events and the bytes of the columns."""
    engine = engine_path(Settings())
    rows = [] if only == "analyses" else [run_alone(ENGINE, [str(engine), "-Q", "select 1", str(trace)])]
    if only is None:
        rows.append(run_alone(LIMIT, [sys.executable, "-c", _GUNZIP, str(trace)]))
        rows.append(run_alone(PASS, [sys.executable, "-c", IJSON, str(trace)]))
    with served(data, keep_ready=True) as server:
        settle(server)
        with timed(INGEST, server, rows):
            ingested = server.upload(trace, wait=3600)
        columns = sum(path.stat().st_size for path in (data / "columns" / str(ingested["id"])).iterdir())
        if only is None:
            rows += measure_cutting(server, ingested, trace, data / "out.json.gz")
        if only in {None, "analyses"}:
            rows += measure_analyses(server, ingested, data.parent)
        if only in {None, "engine"}:
            rows += measure_engine(server, ingested, trace, engine)
    return rows, ingested["events"]["in"], columns


def main() -> None:
    """Measure the given trace or a generated one, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("trace", nargs="?", type=Path)
    options.add_argument(
        "--megabytes", type=int, default=500, help="size of the JSON that is generated if no trace is given"
    )
    options.add_argument("--ranks-megabytes", type=int, default=60, help="size of each of the ranks that are merged")
    options.add_argument(
        "--only",
        choices=("ingest", "engine", "analyses", *APART, *ON_REQUEST),
        help="leave out all but ingests in turns with trace_processor and ijson, sessions and SQL, analyses, uploads,"
        " snapshots and Nsight exports, splits, starts, or growth",
    )
    options.add_argument("--hta", type=Path, help="a trace of one rank to compare with HTA on")
    chosen = options.parse_args()
    for part, measured in (APART | ON_REQUEST).items():
        if chosen.only == part or (chosen.only is None and part in APART):
            sys.stdout.write(measured())
    if chosen.only in APART | ON_REQUEST:
        return
    with tempfile.TemporaryDirectory() as scratch:
        trace = chosen.trace
        if trace is None:
            trace = write_trace(
                Path(scratch, "made.json.gz"),
                sized(TraceShape(streams=STREAMS), chosen.megabytes * 10**6),
                compress="gzip",
            )
        with trace.open("rb") as file:
            size, packed = sum(map(len, plain_chunks(file))), trace.stat().st_size
        if chosen.only == "ingest":
            for line in measure_ingests(trace, size):
                sys.stdout.write(line)
                sys.stdout.flush()
            return
        rows, events, columns = measure(trace, Path(scratch, "data"), chosen.only)
        if chosen.only is None:
            rows.append(measure_merge(Path(scratch), chosen.ranks_megabytes))
        if chosen.only != "engine":
            rows += measure_hta(Path(scratch), chosen.hta)
            rows += measure_ranks(Path(scratch), 64, 15)
    sys.stdout.write(
        f"\n{trace.name}: {size / 1e6:,.0f} MB of JSON, {packed / 1e6:,.1f} MB packed, {events:,} events\n\n"
    )
    sys.stdout.write(_table(rows, size, events))
    sys.stdout.writelines(f"{line}\n" for line in _ratios(rows, packed, columns))


def _table(rows: list[Row], size: int, events: int) -> str:
    """Return a Markdown table of the rows; steps that read the whole trace have their rates."""
    lines = [
        f"| {'step':37} | {'wall s':>8} | {'MB/s':>7} | {'events/s':>10} | {'all MB':>8} | peak MB |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        reads_all = not row.step.startswith(_PARTIAL)
        rate = f"{size / 1e6 / row.wall_s:,.0f}" if reads_all else ""
        event_rate = f"{events / row.wall_s:,.0f}" if reads_all else ""
        peaks = ", ".join(f"{role} {peak:,.0f}" for role, peak in sorted(row.peak_mb.items()))
        figures = (
            f"{row.wall_s:8.{4 if row.wall_s < 0.1 else 2}f} | {rate:>7} | {event_rate:>10} | {row.together_mb:8,.0f}"
        )
        lines.append(f"| {row.step:37} | {figures} | {peaks} |")
    return "\n".join([*lines, "", ""])


def _ratios(rows: list[Row], packed: int, columns: int) -> Iterator[str]:
    """Yield the ratios of steps, a line each."""
    wall = {row.step: row.wall_s for row in rows}
    peak = {row.step: row.peak_mb for row in rows}
    if PASS in wall:
        yield (
            f"Ingest is {wall[ENGINE] / wall[INGEST]:.1f} x faster than trace_processor's load and"
            f" {wall[PASS] / wall[INGEST]:.1f} x faster than one pass of ijson.items;"
            f" its columns take {columns / 1e6:,.1f} MB, {columns / packed:.2f} x the packed file."
        )
    for step in (WINDOW, STREAM, STEPS, PARTS):
        if step in wall:
            yield f"{step}: {wall[FILTER] / wall[step]:.1f} x faster than one filter pass of ijson."
    if HTA in wall:
        yield f"HTA's headlines: {wall[HTA] / wall[OURS]:.1f} x faster here, including the import of the file."
    if SESSION not in wall:
        return
    memory = peak[ENGINE]["process"]
    for step in (SESSION, ESSENTIAL):
        yield (
            f"{step}: {wall[step] / wall[ENGINE]:.2f} x the time of trace_processor alone,"
            f" {peak[step]['engine'] / memory:.2f} x its memory."
        )
    for step in SCREENS.values():
        if step in wall:
            yield f"{step}: {wall[step] / wall[ENGINE]:.2f} x the time of trace_processor alone."
    yield f"{WINDOWED}: {wall[WINDOWED] - wall[IDLE]:.2f} s more than an idle engine's start."
    yield f"{ARROW}: {wall[ROWS] / wall[ARROW]:.1f} x faster than the rows of perfetto's client."


if __name__ == "__main__":
    main()

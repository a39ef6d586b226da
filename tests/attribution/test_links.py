"""Links of work to launches, operators and steps match the oracle on real, generated and hostile traces."""

import gzip
import io
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.attribution import matching
from service.attribution.file import LinkReader, device_slices, has_work, links_of
from service.attribution.links import RULES, Links
from service.attribution.nesting import NONE
from service.attribution.steps import NO_STEP, StepClock
from service.attribution.work import COLUMNS, FIELDS, LAUNCH
from service.jobs.ingest import ingest
from service.store.folder import ATTRIBUTION, EVENTS
from service.store.parts import Parts
from service.trace.summary import Summary
from tests.brute import Document
from tests.conftest import DATA, SHARED, scaled
from tests.cutting.choices import cut, documents, text_of
from tests.traces import TraceShape, trace_chunks

TRACES = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.rglob("*.pt.trace.json.gz")])

SMALL_BYTES = 200_000

Event = dict[str, Any]


def ingested(text: bytes, folder: Path) -> tuple[Links, Summary, list[int]]:
    """Ingest a trace, and return its links, its summary, and the position in the document of each row's event."""
    columns = folder / "columns"
    summary = ingest(io.BufferedReader(io.BytesIO(text)), columns, "trace.json", lambda _: None)
    parts = Parts(columns / EVENTS)
    positions = [position for part in parts.read(["position"]) for position in part.ints("position").tolist()]
    slices = device_slices(parts.read, StepClock(summary), "unknown")
    parts.close()
    assert has_work(columns)
    assert slices.to_pydict() == pq.read_table(columns / ATTRIBUTION).to_pydict()
    check_work(columns)
    links = links_of(columns, summary)
    (columns / ATTRIBUTION).unlink()
    computed = links_of(columns, summary)
    assert all((getattr(links, name) == getattr(computed, name)).all() for name in ("rows", "steps", "operators"))
    return links, summary, positions


def check_work(columns: Path) -> None:
    """Check that the file of links has the fields of the events that are work, and of their launches."""
    events = pq.read_table(columns / EVENTS, columns=[*COLUMNS]).to_pylist()
    configurations: dict[str, int] = {}
    for slice_ in pq.read_table(columns / ATTRIBUTION).to_pylist():
        event, launch = events[slice_["row"]], None if slice_["launch"] is None else events[slice_["launch"]]
        if not slice_["is_work"]:
            assert {slice_[name] for name in (*FIELDS.names, *LAUNCH.names)} == {None}
            continue
        event["names_collective"] = '"Collective name"' in (event["args"] or "")
        _, is_there, tail = (event["args"] or "").partition('"registers per thread"')
        tail = tail.partition('"Collective name"')[0]
        event["configuration"] = configurations.setdefault(tail, slice_["configuration"]) if is_there else None
        assert {name: slice_[name] for name in FIELDS.names} == {name: event[name] for name in FIELDS.names}
        of_launch = (slice_["launch_ts_ns"], slice_["launch_dur_ns"], slice_["launch_name"])
        assert of_launch == (
            (launch["ts_ns"], max(launch["dur_ns"] or 0, 0), launch["name"]) if launch else (None, None, None)
        )
    assert sorted(configurations.values()) == [*range(len(configurations))]


def check(text: bytes) -> Counter[str]:
    """Check the links of a trace against the oracle, and return how many pieces of work each rule attributes."""
    oracle = Document(text).attributed
    with TemporaryDirectory() as folder:
        links, summary, positions = ingested(text, Path(folder))
    work = links.of_work()
    linked = {
        positions[row]: (
            None if launch == NONE else positions[launch],
            None if operator == NONE else positions[operator],
            RULES[rule],
            None if step == NO_STEP else step,
        )
        for row, launch, operator, rule, step in zip(
            *(values.tolist() for values in (work.rows, work.launches, work.operators, work.rules, work.steps)),
            strict=True,
        )
    }
    assert linked == {
        event.index: (
            getattr(oracle.launch(event), "index", None),
            getattr(oracle.operator(event), "index", None),
            oracle.rule(event),
            oracle.step(event),
        )
        for event in oracle.work
    }
    counts = Counter(oracle.rule(event) for event in oracle.work)
    assert summary.attribution == {"external_ids": oracle.external_ids, "rules": dict(counts)}
    assert counts.total() == len(work.rows)
    return counts


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_links_of_a_real_trace_match_the_oracle(path: Path) -> None:
    check(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize(
    "path", [path for path in TRACES if path.stat().st_size < SMALL_BYTES], ids=lambda path: path.name.partition(".")[0]
)
def test_links_do_not_depend_on_how_many_slices_are_matched_at_once(
    path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = gzip.decompress(path.read_bytes())
    rules = check(text)
    monkeypatch.setattr(matching, "SLICES_AT_ONCE", size)
    assert check(text) == rules


def test_links_of_a_generated_trace_match_the_oracle() -> None:
    shape = TraceShape(devices=(0, 1), stacks=True, kernels=12, steps=3)

    assert check(b"".join(trace_chunks(shape)))["launch"]


@settings(max_examples=scaled(40))
@given(documents())
def test_links_of_a_hostile_document_match_the_oracle(text: str) -> None:
    check(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)


_TIDS = st.sampled_from([1, 2, "1"])
_TIMES = st.integers(0, 12)
_HOST = st.builds(
    lambda cat, name, tid, ts, dur, number: {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
        "args": {"External id": number, **({"correlation": number} if cat == "cuda_runtime" else {})},
    },
    st.sampled_from(["cpu_op", "cpu_op", "cuda_runtime", "cuda_runtime", "user_annotation"]),
    st.sampled_from(["a", "cudaGraphLaunch", "aten::is_leaf", "ProfilerStep#1", "ProfilerStep#2"]),
    _TIDS, _TIMES, st.integers(0, 8), st.integers(0, 4),
)  # fmt: skip
_DEVICE = st.builds(
    lambda cat, name, ts, correlation, external: {
        "ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": 1,
        "args": {"device": 0, "stream": 7, "correlation": correlation, "External id": external},
    },
    st.sampled_from(["kernel", "kernel", "gpu_memcpy", "cuda_sync", "gpu_user_annotation"]),
    st.sampled_from(["k", "ProfilerStep#1"]), st.integers(0, 20), st.integers(0, 5), st.integers(0, 4),
)  # fmt: skip


_EQUAL_STEPS = [
    {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": 0, "dur": 4}
    for number in (2, 1)
]
_KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0}}


@settings(max_examples=scaled(60))
@example(_EQUAL_STEPS, [_KERNEL])
@given(st.lists(_HOST, max_size=14), st.lists(_DEVICE, min_size=1, max_size=6))
def test_links_of_overlapping_slices_match_the_oracle(host: list[Event], device: list[Event]) -> None:
    check(text_of(*host, *device).encode())


def _launched(ids: str, random: Random) -> bytes:
    """Build a trace of 40 operators, each launching a kernel, whose External ids are of the given kind."""
    events: list[Event] = []
    for number in range(1, 41):
        at = number * 10
        kernel = {"missing": None, "correlation": 1000 + number, "colliding": random.randint(1, 40), "right": number}
        external = {} if kernel[ids] is None else {"External id": kernel[ids]}
        if ids == "correlation":
            external = {"External id": 100 + number}
        on_host: Event = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**on_host, "cat": "cpu_op", "name": "aten::op", "ts": at, "dur": 8, "args": {"External id": number}},
            {
                **on_host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 2,
                "args": {"correlation": 100 + number, **external},
            },
            {
                "ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": at + 6, "dur": number,
                "args": {"device": 0, "stream": 7, "correlation": 100 + number, **external},
            },
        ]  # fmt: skip
    return text_of(*events).encode()


@pytest.mark.parametrize(
    ("ids", "kind"), [("missing", "unknown"), ("correlation", "other"), ("colliding", "other"), ("right", "operators")]
)
def test_operators_do_not_depend_on_external_ids(ids: str, kind: str, tmp_path: Path) -> None:
    random = Random(ids)
    links, summary, positions = ingested(_launched(ids, random), tmp_path)
    work = links.of_work()

    assert summary.attribution == {"external_ids": kind, "rules": {"launch": 40}}
    assert [positions[row] for row in work.operators.tolist()] == [3 * number for number in range(40)]
    assert [positions[row] for row in work.launches.tolist()] == [3 * number + 1 for number in range(40)]


def linked(links: Links, rows: range) -> list[tuple[int, ...]]:
    """Return what the links say about some rows."""
    values = zip(links.rows, links.launches, links.operators, links.rules, links.steps, links.is_work, strict=True)
    return [(int(row), *map(int, others)) for row, *others in values if row in rows]


@pytest.mark.parametrize("with_file", [True, False])
def test_reader_of_a_part_of_the_links_says_what_that_of_all_does(with_file: bool) -> None:
    text = b"".join(trace_chunks(TraceShape(steps=6, kernels=20)))
    with cut(text, row_group=25) as columns:
        folder = columns.parts.folder
        if not with_file and isinstance(folder, Path):
            (folder / ATTRIBUTION).unlink()
        reader, every = LinkReader(folder, columns.summary), range(columns.parts.rows)
        whole = reader.all()
        for rows in (range(30), range(100, 101), range(200, 400), range(len(every), len(every)), every):
            assert linked(reader.within(slice(rows.start, rows.stop)), rows) == linked(whole, rows)
        for step in columns.summary.steps:
            found = reader.of_steps([step["number"]])
            ours, of_all = (
                [link for link in linked(links, every) if step["number"] in link[4:5]] for links in (found, whole)
            )
            assert ours == of_all
            assert len(found.rows) < len(whole.rows) / 2 or not with_file
        assert not len(reader.of_steps([10**6]).rows) or not with_file

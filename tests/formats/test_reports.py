"""Reports become tables of the text that they have; what does not fit a table stays text, with the reason."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.formats import reports
from service.formats.attachments import AttachmentKind
from service.formats.reports import Report, read_report
from service.formats.unread import ReportKind
from tests.conftest import needs_shared
from tests.formats.test_unread import INPUTS

KINDS: tuple[AttachmentKind, ...] = (*get_args(ReportKind), "text")

NSYS = """\
Generating SQLite file report.sqlite from report.nsys-rep
Processing [report.sqlite] with [/opt/nsight/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Name
70.0,2000000,20,"void gemm<float, (int)128>(float*)"
30.0,1000000,10,"say ""hi"" twice"

Processing [report.sqlite] with [cuda_api_sum]...

Time (%),Num Calls,Name
"""
AVERAGES = """\
------  ------------  ------------
  Name    Self CPU %  CPU time avg long
------  ------------  ------------
aten::mm        10.00%       1.000ms
             0.00%       2.000us
------  ------------  ------------
Self CPU time total: 10.000ms
"""
COMMS = """\
Comm. Op            Message Size        Count               Total Latency(ms)
broadcast
                    2.0 KB              146                 11.12
                    98.25 MB            1                   8317.12
all_gather_base | [Caller Func: _allgather_params]
                    128.0 B             1460                87.36
[2026-06-26 01:39:55,722] [INFO] [Rank 3] rank=3 | comm op: all_reduce | time (ms): 9.46 | msg size: 6.0 MB
some other line of the log
"""
FLOPS = """\

-------------------------- DeepSpeed Flops Profiler --------------------------
Profile Summary at step 10:
world size:                                                   1
fwd latency:                                                  76.67 ms
fwd FLOPS per GPU = fwd flops per GPU / fwd latency:          81.9 TFLOPS
"""

Read = Callable[..., Report]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_text(text: str | bytes, kind: AttachmentKind) -> Report:
        path = tmp_path / "report"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_report(path, kind)

    return read_text


def headings(report: Report) -> list[list[tuple[str, str | None, bool]]]:
    return [[(column.name, column.unit, column.is_number) for column in table.columns] for table in report.tables]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_nsys_summaries_are_tables(compress: Callable[[bytes], bytes], read: Read) -> None:
    report = read(compress(NSYS.encode()), "nsys_summary")
    assert (report.text, report.truncated, report.reason) == (NSYS, False, None)
    assert [table.name for table in report.tables] == ["cuda_gpu_kern_sum", "cuda_api_sum"]
    columns = [("Time", "%", True), ("Total Time", "ns", True), ("Instances", None, True), ("Name", None, False)]
    assert headings(report)[0] == columns
    assert report.tables[0].rows == [
        ["70.0", "2000000", "20", "void gemm<float, (int)128>(float*)"],
        ["30.0", "1000000", "10", 'say "hi" twice'],
    ]
    assert report.tables[1].rows == []


def test_table_of_key_averages_keeps_names_and_units(read: Read) -> None:
    report = read(AVERAGES, "key_averages")
    assert report.reason is None
    [table] = report.tables
    assert headings(report) == [[("Name", None, False), ("Self CPU %", None, True), ("CPU time avg long", None, True)]]
    assert table.rows == [["aten::mm", "10.00%", "1.000ms"], ["", "0.00%", "2.000us"]]


def test_communication_of_deepspeed_is_a_summary_and_a_log(read: Read) -> None:
    report = read(COMMS, "deepspeed_comms")
    assert report.reason is None
    assert [table.name for table in report.tables] == ["summary", "log"]
    assert headings(report)[0] == [
        *(("Comm. Op", None, False), ("Message Size", None, True)),
        *(("Count", None, True), ("Total Latency", "ms", True)),
    ]
    assert report.tables[0].rows == [
        ["broadcast", "2.0 KB", "146", "11.12"],
        ["broadcast", "98.25 MB", "1", "8317.12"],
        ["all_gather_base | [Caller Func: _allgather_params]", "128.0 B", "1460", "87.36"],
    ]
    assert [(column.name, column.unit) for column in report.tables[1].columns] == [
        *(("logged at", None), ("rank", None), ("comm op", None), ("time", "ms"), ("msg size", None)),
    ]
    assert report.tables[1].rows == [["2026-06-26 01:39:55,722", "3", "all_reduce", "9.46", "6.0 MB"]]


def test_figures_of_deepspeed_have_values_and_units(read: Read) -> None:
    [table] = read(FLOPS, "deepspeed_flops").tables
    assert table.rows == [
        ["world size", "1", ""],
        ["fwd latency", "76.67", "ms"],
        ["fwd FLOPS per GPU = fwd flops per GPU / fwd latency", "81.9", "TFLOPS"],
    ]


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("Time (%),Total Time (ns),Name\n1,2\n", "nsys_summary", "Line 2 has 2 cells, and its table 3 columns."),
        (COMMS.replace("146", ""), "deepspeed_comms", "Line 3 has 3 cells, and its table 4 columns."),
        (AVERAGES.replace("10.00%", ""), "key_averages", "Line 4 has 2 cells, and its table 3 columns."),
        ("Comm. Op", "deepspeed_comms", "It has none of the tables that are known."),
        ("{}", "execution_trace", "An execution trace has no tables; `match` compares it with traces."),
        ("notes", "text", None),
    ],
)
def test_what_does_not_fit_stays_text_with_the_reason(
    text: str, kind: AttachmentKind, reason: str | None, read: Read
) -> None:
    report = read(text, kind)
    assert (report.tables, report.text, report.reason) == ([], text, reason)


def test_large_and_damaged_reports_end_early(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "SIZE_MAX", len(FLOPS) - 20)
    report = read(gzip.compress(FLOPS.encode()), "deepspeed_flops")
    assert (report.truncated, report.text) == (True, FLOPS[:-20])
    assert report.reason == f"Only its first {len(FLOPS) - 20} bytes are read."
    assert len(report.tables[0].rows) == 2
    monkeypatch.undo()
    damaged = read(gzip.compress(b"notes" * 999)[:-9], "text")
    assert damaged.truncated
    assert "ends at byte" in (damaged.reason or "")


@needs_shared
@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("text_deepspeed_comms.txt", "deepspeed_comms", [4]),
        ("text_deepspeed_comms_verbose.log", "deepspeed_comms", [2]),
        ("text_deepspeed_flops.txt", "deepspeed_flops", [6]),
        ("text_key_averages.txt", "key_averages", [2]),
        ("text_nsys_kern_sum.csv", "nsys_summary", [2]),
    ],
)
def test_real_reports_are_tables(name: str, kind: AttachmentKind, rows: list[int]) -> None:
    report = read_report(INPUTS / name, kind)
    assert report.reason is None
    assert [len(table.rows) for table in report.tables] == rows
    for table in report.tables:
        for row in table.rows:
            assert all(cell in report.text for cell in row)


@given(
    text=st.text(st.sampled_from("-ab1 ,.:|\n\t(\"')%") | st.characters(exclude_categories=["Cs"])),
    kind=st.sampled_from(KINDS),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_read(text: str, kind: AttachmentKind, read: Read) -> None:
    report = read(text, kind)
    assert all(len(row) == len(table.columns) for table in report.tables for row in table.rows)

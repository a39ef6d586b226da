"""Exports that are cut, damaged, hostile, of another version or no exports: a clear error, or notes in the health."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.nsys.allowed import ALLOWED, REQUIRED
from service.formats.nsys.queries import authorize
from service.formats.nsys.reader import NsysReader
from service.trace.errors import IngestError, NotATrace, Truncated
from tests.formats.nsys.conftest import Ingested
from tests.nsys import PRIVATE_TOKEN, SCHEMA, TOKEN, Export, gpu_row, range_row, write_export

Made = Callable[[Export], Ingested]
Read = Callable[[Path | bytes], Ingested]
KERNEL, CALL, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
OPTIONAL = [(table, column) for table in ALLOWED for column in ALLOWED[table] if column not in REQUIRED[table]]


def kernels(trace: Ingested) -> int:
    ((count,),) = trace.rows("SELECT count(*) FROM events WHERE cat = 'kernel'")
    return int(count)


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_of_the_export_reaches_the_trace(tmp_path: Path, made: Made) -> None:
    trace = made(Export(kernels=50, rows={NVTX: [range_row(0, 10, "a")]}))

    secrets = [TOKEN.encode(), PRIVATE_TOKEN.encode(), b"DeviceEnvironment"]
    assert any(secret in (tmp_path / "made.sqlite").read_bytes() for secret in secrets)
    written = b"".join(file.read_bytes() for file in trace.folder.rglob("*") if file.is_file())
    written += json.dumps(trace.rows("SELECT * FROM events"), default=str).encode() + trace.summary.as_json().encode()
    assert not [secret for secret in secrets if secret in written]


@pytest.mark.parametrize(
    "table", ["TARGET_INFO_SYSTEM_ENV", "PROCESSES", "ProcessStreams", "DIAGNOSTIC_EVENT", "META_DATA_CAPTURE"]
)
def test_tables_that_are_not_allowed_can_not_be_read(table: str) -> None:
    assert table not in ALLOWED
    assert authorize(sqlite3.SQLITE_READ, table, "value", "main", None) == sqlite3.SQLITE_DENY


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT mangledName FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "SELECT sql FROM sqlite_master",
        "SELECT load_extension('x')",
        "SELECT randomblob(9)",
        "SELECT * FROM pragma_database_list",
        "PRAGMA journal_mode",
        "ATTACH 'other.sqlite' AS other",
        "CREATE TEMP TABLE t (x)",
        "DELETE FROM StringIds",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    ],
)
def test_nothing_but_reads_of_allowed_columns_is_authorised(tmp_path: Path, statement: str) -> None:
    with closing(sqlite3.connect(write_export(tmp_path / "made.sqlite"))) as db:
        db.set_authorizer(authorize)
        with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
            db.execute(statement).fetchall()


def test_spooled_file_is_removed(tmp_path: Path, made: Made) -> None:
    assert not [path for path in made(Export(kernels=3)).folder.iterdir() if path.name == "scratch"]


# -- tables and columns that come and go -----------------------------------------------------------------------------


@pytest.mark.parametrize("table", [table for table in ALLOWED if table != KERNEL])
def test_missing_table_is_a_note(made: Made, table: str) -> None:
    trace = made(Export(kernels=10, without=[table]))

    assert kernels(trace) == 10
    (note,) = [note for note in trace.summary.health["notes"] if note["code"] == "absent_tables"]
    assert (note["count"], note["examples"][0]["text"]) == (1, table)


def test_export_of_calls_alone_is_a_trace(made: Made) -> None:
    trace = made(Export(kernels=10, without=[KERNEL]))
    assert trace.summary.events["kept"] >= 10


@pytest.mark.parametrize(("table", "column"), OPTIONAL)
def test_missing_optional_column_is_a_note(tmp_path: Path, table: str, column: str) -> None:
    rows = {NVTX: [range_row(0, 10, "a")], "CUPTI_ACTIVITY_KIND_MEMCPY": [gpu_row(0, 9, bytes=1, copyKind=1)]}
    path = write_export(tmp_path / "made.sqlite", Export(kernels=10, rows=rows, lacking={table: [column]}))
    present = {name for (name,) in _columns(path, table)}
    if column not in present and column not in _schema_columns(table):
        pytest.skip("the generated export has no such column")

    reader = NsysReader([path.read_bytes()], tmp_path)
    assert sum(batch["cat"].to_pylist().count("kernel") for batch in reader.batches()) == 10
    if table in (KERNEL, CALL, NVTX, "CUPTI_ACTIVITY_KIND_MEMCPY"):
        assert reader.health.count("absent_columns") >= 1


def _columns(path: Path, table: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()


def _schema_columns(table: str) -> set[str]:
    return {column.split()[0] for column in SCHEMA[table].split(", ")}


def test_table_without_a_required_column_is_reported(made: Made) -> None:
    trace = made(Export(kernels=10, lacking={CALL: ["nameId"]}))
    assert kernels(trace) == 10
    assert trace.notes["unusable_table"] == 1


# -- what is no export -----------------------------------------------------------------------------------------------


def test_export_without_events_names_what_to_do(made: Made) -> None:
    without = [table for table in ALLOWED if table.startswith("CUPTI") or table == NVTX]
    with pytest.raises(NotATrace, match=r"no table of GPU work.*nsys profile --trace=cuda,nvtx.*nsys export"):
        made(Export(without=without))


def test_export_with_empty_tables_is_refused(made: Made) -> None:
    with pytest.raises(NotATrace, match="no readable row"):
        made(Export(kernels=0))


def test_other_database_is_refused(tmp_path: Path, read: Read) -> None:
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as db:
        db.execute("CREATE TABLE users (name TEXT)")
        db.commit()
    with pytest.raises(NotATrace, match="no export of Nsight Systems"):
        read(tmp_path / "other.sqlite")


@pytest.mark.parametrize("version", ["4.0.0", "0.1", "x", "999999999999999999999.1"])
def test_other_version_of_the_schema_is_refused(made: Made, version: str) -> None:
    with pytest.raises(NotATrace, match=r"versions 1 to 3 are read"):
        made(Export(version=version))


@pytest.mark.parametrize("version", [None, "1.9.0", "2.7.1", "3.25.0"])
def test_known_and_unnamed_versions_are_read(made: Made, version: str | None) -> None:
    assert kernels(made(Export(kernels=3, version=version))) == 3


@pytest.mark.parametrize(
    "content", [b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 84, b"SQL", b"SQLite format 3\0" * 900]
)
def test_header_alone_is_refused(read: Read, content: bytes) -> None:
    with pytest.raises(IngestError):
        read(content)


# -- hostile schemas -------------------------------------------------------------------------------------------------

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS start, i AS end, 0 AS deviceId, 7 AS streamId, 1 AS demangledName FROM n"
)


@pytest.mark.parametrize(
    "statements",
    [
        (f"DROP TABLE {KERNEL}", f"CREATE VIEW {KERNEL} AS {ENDLESS}"),
        (
            f"DROP TABLE {KERNEL}",
            f"CREATE VIRTUAL TABLE {KERNEL} USING fts5(start, end, deviceId, streamId, demangledName)",
        ),
        (
            f"DROP TABLE {KERNEL}",
            f"CREATE TABLE {KERNEL} (start INTEGER AS (length(zeroblob(end))), end, deviceId, streamId, x)",
            f"INSERT INTO {KERNEL} (end, deviceId, streamId) VALUES (1000000000, 0, 7)",
        ),
        (
            f"DROP TABLE {KERNEL}",
            f"CREATE TABLE {KERNEL} (start INTEGER PRIMARY KEY, end, deviceId, streamId) WITHOUT ROWID",
        ),
        (f"DROP TABLE {KERNEL}", f"CREATE TABLE {KERNEL} (rowid, start, end, deviceId, streamId)"),
    ],
    ids=["view", "virtual table", "generated column", "without rowid", "own rowid"],
)  # fmt: skip
def test_table_that_runs_code_or_has_no_row_numbers_is_not_read(made: Made, statements: tuple[str, ...]) -> None:
    trace = made(Export(kernels=10, statements=statements))

    assert kernels(trace) == 0
    assert trace.notes["unusable_table"] == 1
    assert trace.summary.counts["X|cuda_runtime"] + trace.summary.counts["X|cuda_driver"] == 10


def test_triggers_are_ignored(made: Made) -> None:
    trigger = f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN DELETE FROM StringIds; END"
    assert kernels(made(Export(kernels=10, statements=[trigger]))) == 10


def test_view_of_secrets_under_an_allowed_name_is_not_read(made: Made) -> None:
    statements = [
        "DROP TABLE ThreadNames",
        "CREATE VIEW ThreadNames AS SELECT 9001 AS nameId, globalPid AS globalTid FROM PROCESSES",
    ]
    trace = made(Export(kernels=10, statements=statements))
    assert TOKEN not in trace.summary.as_json()


# -- hostile values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["'text'", "1.5", "x'ff00'", "'1,2'", "'1' || char(10) || '2'", "zeroblob(70000000)", "'\"'"]
)
@pytest.mark.parametrize("column", ["start", "gridX", "demangledName", "correlationId"])
def test_row_with_a_wrong_type_is_refused_and_all_others_are_kept(made: Made, column: str, value: str) -> None:
    trace = made(Export(kernels=100, statements=[f"UPDATE {KERNEL} SET {column} = {value} WHERE rowid = 50"]))

    assert kernels(trace) == 99
    assert trace.summary.events["refused"] == 1
    assert trace.notes["unreadable_event"] == 1


@pytest.mark.parametrize("column", ["start", "end", "deviceId", "streamId"])
def test_row_without_a_required_value_is_refused(made: Made, column: str) -> None:
    trace = made(Export(kernels=100, statements=[f"UPDATE {KERNEL} SET {column} = NULL WHERE rowid < 11"]))
    assert (kernels(trace), trace.summary.events["refused"]) == (90, 10)


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), 1 << 62])
def test_absurd_times_are_refused(made: Made, value: int) -> None:
    trace = made(Export(kernels=100, statements=[f"UPDATE {KERNEL} SET end = {value} WHERE rowid = 7"]))
    assert (kernels(trace), trace.summary.events["refused"]) == (99, 1)


def test_ids_of_any_size_are_read(made: Made) -> None:
    largest = (1 << 63) - 1
    columns = ("deviceId", "streamId", "correlationId", "globalPid", "demangledName", "gridX", "graphNodeId")
    updates = [f"UPDATE {KERNEL} SET {column} = {number} WHERE rowid = {row}"
               for row, column in enumerate(columns, 1) for number in (largest,)]  # fmt: skip
    assert kernels(made(Export(kernels=20, statements=updates))) == 20


def test_row_numbers_far_apart_are_read(made: Made) -> None:
    statements = [f"UPDATE {KERNEL} SET rowid = {number} WHERE rowid = {row}"
                  for row, number in ((1, -(1 << 63) + 1), (2, (1 << 63) - 1), (3, -5))]  # fmt: skip
    assert kernels(made(Export(kernels=10, statements=statements))) == 10


def test_name_that_is_no_utf8_is_repaired(made: Made) -> None:
    update = "UPDATE StringIds SET value = CAST(x'6bff6b' AS TEXT) WHERE id = 101"
    trace = made(Export(kernels=20, statements=[update]))
    assert ("k\ufffdk",) in trace.rows("SELECT DISTINCT name FROM events WHERE cat = 'kernel'")


def test_wrong_values_of_a_range_are_refused(made: Made) -> None:
    rows = [range_row(0, 10, "a"), range_row(20, 30, "b"), range_row(40, 50, "c")]
    updates = [f"UPDATE {NVTX} SET start = 'x' WHERE rowid = 1", f"UPDATE {NVTX} SET text = x'00' WHERE rowid = 2"]
    trace = made(Export(kernels=10, rows={NVTX: rows}, statements=updates))

    names = [event["name"] for event in trace.dicts("cat = 'user_annotation'")]
    assert names == ["unknown", "c"]
    assert trace.summary.events["refused"] == 1


# -- damage ----------------------------------------------------------------------------------------------------------


def test_cut_export_keeps_what_can_be_read(tmp_path: Path, read: Read) -> None:
    content = write_export(tmp_path / "whole.sqlite", Export(kernels=20_000)).read_bytes()

    trace = read(content[: len(content) // 2])

    assert 0 < trace.summary.events["kept"] < 80_000
    assert {"cut", "damaged_table"} <= trace.notes.keys()


def test_export_cut_before_its_rows_is_truncated(tmp_path: Path, read: Read) -> None:
    content = write_export(tmp_path / "whole.sqlite", Export(kernels=20_000)).read_bytes()
    with pytest.raises(Truncated, match="ends at byte 5000"):
        read(content[:5000])


def test_cut_gzip_of_an_export_keeps_what_can_be_read(tmp_path: Path, read: Read) -> None:
    content = gzip.compress(write_export(tmp_path / "whole.sqlite", Export(kernels=20_000)).read_bytes())
    trace = read(content[: len(content) * 2 // 3])
    assert trace.summary.format == "sqlite.gz"
    assert trace.notes["cut"] == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_compressed_export_is_the_same_trace(tmp_path: Path, read: Read, compress: Callable[[bytes], bytes]) -> None:
    content = write_export(tmp_path / "whole.sqlite", Export(kernels=10)).read_bytes()
    assert kernels(read(compress(content))) == 10


@settings(deadline=None)
@given(st.data())
def test_random_damage_gives_events_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(write_export(folder / "whole.sqlite", Export(kernels=300)).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(1, 40))] = data.draw(st.binary(min_size=1, max_size=40))

    reader = NsysReader([bytes(content)], folder)
    try:
        kept = sum(map(len, reader.batches()))
    except IngestError:
        kept = 0
    assert kept == reader.kept or not kept
    assert not (folder / "export.sqlite").exists()

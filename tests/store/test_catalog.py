"""The catalog: pages are complete, older versions are migrated, and a kill at any time loses no committed change."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store.catalog import INGEST, Catalog, State, Trace, new_trace_id
from service.store.connection import SCHEMA_VERSION
from service.store.jobs import Job, Jobs
from service.trace.errors import DiskFull, TracedockError, UnknownTrace
from service.trace.summary import Step, Summary
from tests.conftest import scaled

SUMMARY = Summary(format="json", events={"in": 1, "kept": 1, "refused": 0}, counts={"X|kernel": 1})


def add(catalog: Catalog, trace_id: str = "", name: str = "t.json") -> Trace:
    return catalog.add(trace_id or new_trace_id(), name=name, size=5, sha256="00")


def claim_ingest(jobs: Jobs) -> Job:
    job = jobs.claim([INGEST])
    assert job
    return job


# -- traces and their jobs --------------------------------------------------------------------------------------


def test_removed_trace_cancels_its_job(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")

    catalog.remove("a")

    assert jobs.claim([INGEST]) is None
    assert catalog.ids() == []
    with pytest.raises(UnknownTrace, match="'a'"):
        catalog.get("a")


def test_traces_of_the_same_bytes_are_found_with_ready_ones_first(catalog: Catalog) -> None:
    for trace_id in ("a", "b"):
        catalog.add(trace_id, name=f"{trace_id}.json", size=5, sha256="00")
    catalog.add("c", name="c.json", size=5, sha256="00", group="run", summary=SUMMARY)
    catalog.add("d", name="d.json", size=6, sha256="00")

    assert [trace.id for trace in catalog.find_by_bytes("00", 5)] == ["c", "a", "b"]
    assert catalog.find_like(sha256="00", size=5, name="b.json", group=None) == "b"
    assert catalog.find_like(sha256="00", size=5, name="c.json", group="run") == "c"
    assert catalog.find_like(sha256="00", size=5, name="c.json", group=None) is None
    assert catalog.find_like(sha256="00", size=6, name="b.json", group=None) is None


def test_trace_added_with_summary_is_ready_without_a_job(catalog: Catalog) -> None:
    trace = catalog.add("a", name="a.json", size=5, sha256="00", summary=SUMMARY)

    assert (trace.state, trace.summary, trace.job) == (State.READY, SUMMARY, None)


def test_brief_page_has_the_number_of_steps_instead_of_long_lists(catalog: Catalog) -> None:
    step: Step = {"number": 1, "name": "ProfilerStep#1", "start_ns": 1, "end_ns": 2, "pid": 1, "tid": 2}
    whole, cut = replace(SUMMARY, steps=[step] * 2), replace(SUMMARY, steps=[step], totals={"steps": 7, "threads": 9})
    catalog.add("whole", name="n", size=1, sha256="", summary=whole)
    catalog.add("cut", name="n", size=1, sha256="", summary=cut)

    page = {trace.id: trace.summary_or_empty for trace in catalog.page(limit=2, brief=True)}

    assert page == {
        "whole": replace(whole, counts={}, steps=[], totals={"steps": 2}),
        "cut": replace(cut, counts={}, steps=[], totals={"steps": 7}),
    }
    assert (page["whole"].steps_count, page["cut"].steps_count) == (2, 7)


def test_summary_with_a_field_of_an_earlier_version_is_read(catalog: Catalog) -> None:
    add(catalog, "a")
    text = '{"format": "json", "events": {"kept": 1}, "former": 1}'
    with catalog.connection.transaction() as db:
        db.execute("UPDATE trace SET state = 'ready', summary = ?", (text,))

    (brief,) = catalog.page(limit=1, brief=True)

    assert catalog.get("a").summary == Summary(format="json", events={"kept": 1})
    assert brief.summary == Summary(format="json", events={"kept": 1}, totals={"steps": 0})


def test_oldest_removable_trace_is_settled_and_not_pinned(catalog: Catalog) -> None:
    catalog.add("queued", name="n", size=1, sha256="")
    for trace_id in ("pinned", "busy", "old", "young"):
        catalog.add(trace_id, name="n", size=1, sha256="", summary=SUMMARY)
    catalog.update("pinned", pinned=True)

    oldest = catalog.oldest_removable(before_ns=1 << 62, excluding=["busy"])
    assert oldest
    assert oldest.id == "old"
    assert catalog.oldest_removable(before_ns=catalog.get("busy").created_ns) is None


def test_an_unknown_trace_cannot_be_removed(catalog: Catalog) -> None:
    with pytest.raises(UnknownTrace):
        catalog.remove("a")


def test_a_job_that_ends_after_its_trace_was_removed_changes_nothing(catalog: Catalog, jobs: Jobs) -> None:
    for end in (
        lambda job: jobs.finish_ingest(job, SUMMARY),
        lambda job: jobs.fail(job, DiskFull("The disk is full.")),
        jobs.retry,
    ):
        add(catalog, "a")
        job = claim_ingest(jobs)
        catalog.remove("a")

        end(job)

        assert catalog.ids() == []
        assert jobs.claim([INGEST]) is None


# -- pages ------------------------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(catalog: Catalog) -> None:
    ids = [add(catalog).id for _ in range(11)]
    traces: list[Trace] = []
    after = None
    while page := catalog.page(limit=3, after=after):
        assert len(page) <= 3
        traces += page
        after = page[-1].created_ns, page[-1].id

    assert [trace.id for trace in traces] == ids[::-1]


def test_traces_of_one_instant_are_paged_by_id(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.catalog.time.time_ns", lambda: 7)
    for trace_id in "cabd":
        add(catalog, trace_id)

    assert [trace.id for trace in catalog.page(limit=2)] == ["d", "c"]
    assert [trace.id for trace in catalog.page(limit=9, after=(7, "c"))] == ["b", "a"]


def test_page_is_filtered_by_state(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    jobs.finish_ingest(claim_ingest(jobs), SUMMARY)
    add(catalog, "b")

    assert [trace.id for trace in catalog.page(limit=9, state=State.READY)] == ["a"]
    assert [trace.id for trace in catalog.page(limit=9, state=State.QUEUED)] == ["b"]


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("", ["50%_of.json", "50x_of.json", "RANK_0.json", "Über.json", "50%of.json"]),
        ("%", ["50%_of.json", "50%of.json"]),
        ("_", ["50%_of.json", "50x_of.json", "RANK_0.json"]),
        ("rank_", ["RANK_0.json"]),
        ("JSON", ["50%_of.json", "50x_of.json", "RANK_0.json", "Über.json", "50%of.json"]),
        ("ÜBER", ["Über.json"]),
        ("*", []),
        ("'", []),
    ],
)
def test_page_is_filtered_by_literal_text_in_names(catalog: Catalog, part: str, names: list[str]) -> None:
    for name in ("50%of.json", "Über.json", "RANK_0.json", "50x_of.json", "50%_of.json"):
        add(catalog, name=name)

    assert [trace.name for trace in catalog.page(limit=9, name=part)] == names


@given(names=st.lists(st.text(max_size=4), max_size=6), part=st.text(max_size=2))
@settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_name_filter_ignores_case(tmp_path: Path, names: list[str], part: str) -> None:
    catalog = Catalog(Path(":memory:"))
    names = [name.replace("\0", "") for name in names]  # names of traces have no NUL
    part = part.replace("\0", "")
    for name in names:
        add(catalog, name=name)

    listed = [trace.name for trace in catalog.page(limit=99, name=part)]

    catalog.close()
    assert listed == [name for name in reversed(names) if part.casefold() in name.casefold()]


# -- migrations and failures ------------------------------------------------------------------------------------


FIRST_SCHEMA = """
CREATE TABLE trace (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, error TEXT, created_ns INTEGER NOT NULL,
    size INTEGER NOT NULL, sha256 TEXT NOT NULL, summary TEXT
) STRICT;
CREATE INDEX trace_newest ON trace (created_ns DESC, id DESC);
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,
    trace TEXT NOT NULL REFERENCES trace (id) ON DELETE CASCADE, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_waiting ON job (state, id);
INSERT INTO trace VALUES ('a', 't.json', 'ready', NULL, 1, 5, '00', '{"format":"json"}');
INSERT INTO trace VALUES ('b', 't.json', 'failed', '{"code":"not_json"}', 2, 5, '00', NULL);
INSERT INTO trace VALUES ('c', 't.json', 'queued', NULL, 3, 5, '00', NULL);
INSERT INTO job VALUES (7, 'ingest', 'c', 'queued', 1);
"""


THIRD_SCHEMA = """
CREATE TABLE trace (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, error TEXT, created_ns INTEGER NOT NULL,
    size INTEGER NOT NULL, sha256 TEXT NOT NULL, summary TEXT, parent TEXT, selection TEXT
) STRICT;
CREATE INDEX trace_newest ON trace (created_ns DESC, id DESC);
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, trace TEXT REFERENCES trace (id) ON DELETE CASCADE,
    request TEXT NOT NULL DEFAULT '{}', state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, result TEXT,
    events INTEGER NOT NULL DEFAULT 0, error TEXT
) STRICT;
CREATE INDEX job_waiting ON job (state, id);
INSERT INTO trace VALUES ('a', 't.json', 'ready', NULL, 1, 5, '00', '{"format":"json"}', NULL, NULL);
INSERT INTO trace VALUES ('c', 't.json', 'queued', NULL, 3, 5, '00', NULL, NULL, NULL);
INSERT INTO job VALUES (7, 'ingest', 'c', '{}', 'queued', 1, NULL, 0, NULL);
INSERT INTO job VALUES (8, 'split', NULL, '{"trace":"c"}', 'done', 1, '["a"]', 4, NULL);
"""


def migrated_catalog(path: Path, version: int, schema: str = FIRST_SCHEMA) -> Catalog:
    """Create the file of an earlier version's catalog, and open it; `FIRST_SCHEMA` is that of versions 1 and 2."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{schema} PRAGMA user_version = {version};")
    return Catalog(path)


def test_traces_of_the_first_version_are_ingested_again(tmp_path: Path) -> None:
    with closing(migrated_catalog(tmp_path / "c", 1)) as catalog:
        traces = [catalog.get(trace_id) for trace_id in "abc"]
        assert [(trace.state, trace.error) for trace in traces] == [(State.QUEUED, None)] * 3
        jobs = [Jobs(catalog.connection).claim([INGEST]) for _ in range(4)]
        assert [job.trace if job else None for job in jobs] == ["a", "b", "c", None]


def test_traces_and_jobs_of_the_second_version_stay(tmp_path: Path) -> None:
    with closing(migrated_catalog(tmp_path / "c", 2)) as catalog:
        assert [catalog.get(trace_id).state for trace_id in "abc"] == [State.READY, State.FAILED, State.QUEUED]
        trace = catalog.get("a")
        assert (trace.parent, trace.selection, trace.has_original) == (None, None, True)
        jobs = Jobs(catalog.connection)
        job = jobs.claim([INGEST])
        assert job
        assert (job.id, job.trace, job.attempts) == (7, "c", 2)
        assert jobs.add("split", {}).id == 8
    Catalog(tmp_path / "c").close()


def test_traces_and_jobs_of_the_third_version_stay(tmp_path: Path) -> None:
    with closing(migrated_catalog(tmp_path / "c", 3, THIRD_SCHEMA)) as catalog:
        jobs = Jobs(catalog.connection)
        trace, job = catalog.get("a"), jobs.get(8)
        assert (trace.state, trace.group_id, trace.pinned, trace.path) == (State.READY, None, False, None)
        assert (job.state, job.result, job.priority, job.created_ns, job.ended_ns) == (
            "done",
            {"traces": ["a"]},
            0,
            0,
            None,
        )
        claimed = jobs.claim([INGEST])
        assert claimed
        assert (claimed.id, claimed.trace, claimed.attempts) == (7, "c", 2)
    Catalog(tmp_path / "c").close()


def test_catalog_of_unknown_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    catalog = Catalog(path)
    catalog.connection._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    catalog.close()

    with pytest.raises(
        TracedockError,
        match=f"has the schema version {SCHEMA_VERSION + 1}; this version of the service reads {SCHEMA_VERSION}",
    ):
        Catalog(path)


def test_catalog_reports_a_full_disk_and_recovers(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    pages = catalog.connection._db.execute("PRAGMA page_count").fetchone()[0]
    catalog.connection._db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(DiskFull):
        add(catalog, "b", name="x" * 100_000)

    assert catalog.ids() == ["a"]
    catalog.connection._db.execute("PRAGMA max_page_count = 1000000")
    add(catalog, "b", name="x" * 100_000)
    assert [claim_ingest(jobs).trace for _ in range(2)] == ["a", "b"]


def test_failed_transaction_is_rolled_back(catalog: Catalog) -> None:
    with pytest.raises(RuntimeError), catalog.connection.transaction() as db:  # noqa: PT012 - fails after its changes
        db.execute("INSERT INTO run_group VALUES ('a', 'n', NULL, 1)")
        db.execute(
            "INSERT INTO trace (id, name, state, created_ns, size, sha256) VALUES ('a', 'n', 'queued', 1, 1, '')"
        )
        raise RuntimeError

    assert catalog.ids() == []
    add(catalog, "a")


def test_concurrent_threads_claim_each_job_once(catalog: Catalog, jobs: Jobs) -> None:
    def work(_: int) -> list[str]:
        trace_ids = []
        for _ in range(10):
            add(catalog)
            if job := jobs.claim([INGEST]):
                jobs.finish_ingest(job, SUMMARY)
                trace_ids.append(job.trace)
            catalog.page(limit=5)
        return trace_ids

    with ThreadPoolExecutor(8) as pool:
        claimed = [trace_id for trace_ids in pool.map(work, range(8)) for trace_id in trace_ids]

    assert len(claimed) == 80
    assert sorted(claimed) == sorted(catalog.ids())
    assert all(trace.state is State.READY for trace in catalog.page(limit=100))


WORK_UNTIL_KILLED = """
import sys
from pathlib import Path
from service.store.catalog import Catalog
from service.store.jobs import Jobs
catalog = Catalog(Path(sys.argv[1]))
for number in range(20):
    catalog.add(f"{number:02}", name="n", size=1, sha256="")
    print(number, flush=True)
Jobs(catalog.connection).claim(["ingest"])
with catalog.connection.transaction() as db:
    db.execute("UPDATE trace SET state = 'failed'")
    db.execute("DELETE FROM job")
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_kill_inside_a_transaction_loses_only_that_transaction(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with subprocess.Popen(
        [sys.executable, "-c", WORK_UNTIL_KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout
        lines = [line.strip() for line in iter(worker.stdout.readline, "inside\n")]
        worker.kill()

    catalog = Catalog(path)
    jobs = Jobs(catalog.connection)
    jobs.requeue_interrupted()

    assert lines == [str(number) for number in range(20)]
    assert sorted(catalog.ids()) == [f"{number:02}" for number in range(20)]
    assert [claim_ingest(jobs).trace for _ in range(20)] == [f"{number:02}" for number in range(20)]
    assert catalog.connection._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    catalog.close()


def test_ids_are_twelve_hexadecimal_digits_and_unique() -> None:
    ids = {new_trace_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert all(len(trace_id) == 12 and int(trace_id, 16) >= 0 for trace_id in ids)

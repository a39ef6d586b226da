"""Import orders and the outcomes of their files survive a restart."""

from contextlib import closing
from pathlib import Path

import orjson
import pytest

from service.store import imports
from service.store.catalog import Catalog
from service.store.imports import ARRIVING, File, Imports, ImportSpec
from service.store.jobs import Jobs
from service.trace.errors import UnknownImport

ONCE, WATCHING = ImportSpec("a", "auto"), ImportSpec("a", "auto", group="run", watch=True)


def test_orders_and_files_survive_a_restart(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path / "c")) as first:
        orders = Imports(first.connection)
        watching, finished = orders.add(WATCHING), orders.add(ONCE)
        orders.note(watching.id, File("a", "1", "t", None))
        orders.note(watching.id, File("b", "2", None, "why"))
        orders.note(watching.id, File("b", "3", "u", ARRIVING))
        orders.set_job(watching.id, 7)

    with closing(Catalog(tmp_path / "c")) as second:
        orders = Imports(second.connection)
        (order,) = orders.watching()
        assert (order.id, order.spec, order.job, order.watches) == (watching.id, WATCHING, 7, True)
        assert not orders.get(finished.id).watches
        assert orders.file(watching.id, "b") == File("b", "3", "u", ARRIVING)
        assert orders.file(watching.id, "c") is None
        assert orders.marks(watching.id) == {"a": "1", "b": "3"}
        assert orders.counts(watching.id) == (2, 0)
        assert [file.path for file in orders.files(watching.id, limit=1, after="a")] == ["b"]
        ended_order = orders.end(watching.id)
        assert orders.end(watching.id) == ended_order
        assert orders.watching() == []


def test_order_is_stored_and_read_as_it_is(tmp_path: Path) -> None:
    request = {"path": "/data/*.json", "mode": "auto", "group": "run", "name": None, "watch": True}
    with closing(Catalog(tmp_path / "c")) as catalog:
        order = Imports(catalog.connection).add(ImportSpec("/data/*.json", "auto", "run", watch=True))
        with catalog.connection.transaction() as db:
            (row,) = db.execute("SELECT request FROM import_order").fetchall()
        assert orjson.loads(row["request"]) == request
        assert order.spec == ImportSpec("/data/*.json", "auto", "run", watch=True)


def test_missing_import_is_unknown(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path / "c")) as catalog:
        orders = Imports(catalog.connection)
        for ask in (orders.get, orders.end):
            with pytest.raises(UnknownImport, match="'x'"):
                ask("x")


def test_oldest_ended_orders_are_deleted_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "KEPT", 2)
    with closing(Catalog(tmp_path / "c")) as catalog:
        orders, jobs = Imports(catalog.connection), Jobs(catalog.connection)
        watching, old = orders.add(WATCHING), orders.add(ONCE)
        orders.note(old.id, File("a", "1", "t", None))
        job = jobs.add("import", {})
        orders.set_job(old.id, job.id)
        for _ in range(3):
            orders.add(ONCE)
        assert orders.get(old.id).job == job.id  # the order is not finished
        jobs.finish(job, {"traces": []})
        orders.add(ONCE)

        with pytest.raises(UnknownImport):
            orders.get(old.id)
        assert orders.files(old.id, limit=9) == []
        assert orders.get(watching.id) == watching

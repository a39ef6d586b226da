"""What the tests of the store share: a data folder, and a catalog with its jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.jobs import Jobs


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    one = Folder(tmp_path / "data")
    one.open()
    yield one
    one.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    one = Catalog(tmp_path / "catalog.sqlite")
    yield one
    one.close()


@pytest.fixture
def jobs(catalog: Catalog) -> Jobs:
    return Jobs(catalog.connection)

"""Fixtures of the store tests: a data folder, and a catalog with its jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.jobs import Jobs


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    data_folder = Folder(tmp_path / "data")
    data_folder.open()
    yield data_folder
    data_folder.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    open_catalog = Catalog(tmp_path / "catalog.sqlite")
    yield open_catalog
    open_catalog.close()


@pytest.fixture
def jobs(catalog: Catalog) -> Jobs:
    return Jobs(catalog.connection)

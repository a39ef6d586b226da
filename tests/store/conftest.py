"""What the tests of the store share: a data folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    one = Folder(tmp_path / "data")
    one.open()
    yield one
    one.close()

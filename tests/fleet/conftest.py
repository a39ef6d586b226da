"""Fixtures of all tests of fleets."""

import gc
from collections.abc import Iterator

import pytest

from tests.store.locations.conftest import bucket, s3

__all__ = ["bucket", "s3"]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect what Dask leaves open, as after a failed connection, while a test may ignore the warnings of that."""
    yield
    gc.collect()

"""A key finds its response for a day, and the created resource even without a response."""

import sqlite3

import pytest

from service.store.catalog import Catalog
from service.store.idempotency import CURRENT_KEY, KEPT_S, Idempotency, Key, StoredRequest, StoredResponse
from service.store.jobs import Jobs

KEY = Key("k", "somebody")
ANSWER = StoredResponse(201, [("location", "/x"), ("content-type", "application/json")], b'{"id": "\xc3\xa4"}')


@pytest.fixture
def keys(catalog: Catalog) -> Idempotency:
    return Idempotency(catalog.connection)


def test_response_is_found_again_unchanged(keys: Idempotency) -> None:
    assert keys.find(KEY) is None
    keys.begin(KEY, "digest")
    assert keys.find(KEY) == StoredRequest("digest", None, None)
    keys.complete(KEY, ANSWER)
    assert keys.find(KEY) == StoredRequest("digest", ANSWER, None)


def test_each_caller_has_its_own_keys(keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    assert keys.find(Key("k", "somebody else")) is None


def test_created_resource_is_recorded_with_its_key(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    unkeyed_job = Jobs(catalog.connection).add("merge", {})  # created by a request without a key
    mark = CURRENT_KEY.set(KEY)
    job = Jobs(catalog.connection).add("merge", {})
    CURRENT_KEY.reset(mark)
    assert job.id != unkeyed_job.id
    assert keys.find(KEY) == StoredRequest("digest", None, f"job/{job.id}")
    keys.forget(KEY, refused=False)
    assert keys.find(KEY)
    keys.forget(KEY, refused=True)
    assert keys.find(KEY) is None


def test_resource_of_a_failed_transaction_is_not_recorded(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    mark = CURRENT_KEY.set(KEY)
    catalog.add("a", name="n", size=1, sha256="00")
    keys.begin(KEY, "digest")
    with pytest.raises(sqlite3.IntegrityError):
        catalog.add("a", name="n", size=1, sha256="00")
    CURRENT_KEY.reset(mark)
    assert keys.find(KEY) == StoredRequest("digest", None, None)


def test_later_resources_do_not_change_the_response(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    mark = CURRENT_KEY.set(KEY)
    catalog.add("a", name="n", size=1, sha256="00")
    keys.complete(KEY, ANSWER)
    catalog.add("b", name="n", size=1, sha256="00")
    CURRENT_KEY.reset(mark)
    assert keys.find(KEY) == StoredRequest("digest", ANSWER, "trace/a")


def test_key_is_new_after_a_day(keys: Idempotency, monkeypatch: pytest.MonkeyPatch) -> None:
    time_ns = 10**18
    monkeypatch.setattr("service.store.idempotency.time.time_ns", lambda: time_ns)
    keys.begin(KEY, "digest")
    keys.complete(KEY, ANSWER)
    time_ns += KEPT_S * 10**9 - 1
    assert keys.find(KEY)
    time_ns += 1
    assert keys.find(KEY) is None
    keys.begin(Key("other", ""), "digest")
    assert len(keys._rows("SELECT * FROM idempotency")) == 1

"""Keys of requests: what was answered is found again for a day, and what was made even if it was not answered."""

import sqlite3

import pytest

from service.store.catalog import Catalog
from service.store.idempotency import KEPT_S, UNDER_WAY, Answer, Idempotency, Key, Known
from service.store.jobs import Jobs

KEY = Key("k", "somebody")
ANSWER = Answer(201, [("location", "/x"), ("content-type", "application/json")], b'{"id": "\xc3\xa4"}')


@pytest.fixture
def keys(catalog: Catalog) -> Idempotency:
    return Idempotency(catalog.connection)


def test_an_answer_is_found_again_as_it_was(keys: Idempotency) -> None:
    assert keys.find(KEY) is None
    keys.begin(KEY, "digest")
    assert keys.find(KEY) == Known("digest", None, None)
    keys.answered(KEY, ANSWER)
    assert keys.find(KEY) == Known("digest", ANSWER, None)


def test_each_caller_has_keys_of_its_own(keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    assert keys.find(Key("k", "somebody else")) is None


def test_what_a_request_makes_is_noted_with_its_key(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    other = Jobs(catalog.connection).add("merge", {})  # of a request without a key
    mark = UNDER_WAY.set(KEY)
    job = Jobs(catalog.connection).add("merge", {})
    UNDER_WAY.reset(mark)
    assert job.id != other.id
    assert keys.find(KEY) == Known("digest", None, f"job/{job.id}")
    keys.forget(KEY, refused=False)
    assert keys.find(KEY)
    keys.forget(KEY, refused=True)
    assert keys.find(KEY) is None


def test_what_is_not_made_after_all_is_not_noted(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    mark = UNDER_WAY.set(KEY)
    catalog.add("a", name="n", size=1, sha256="00")
    keys.begin(KEY, "digest")
    with pytest.raises(sqlite3.IntegrityError):
        catalog.add("a", name="n", size=1, sha256="00")
    UNDER_WAY.reset(mark)
    assert keys.find(KEY) == Known("digest", None, None)


def test_what_comes_later_does_not_change_what_was_answered(catalog: Catalog, keys: Idempotency) -> None:
    keys.begin(KEY, "digest")
    mark = UNDER_WAY.set(KEY)
    catalog.add("a", name="n", size=1, sha256="00")
    keys.answered(KEY, ANSWER)
    catalog.add("b", name="n", size=1, sha256="00")
    UNDER_WAY.reset(mark)
    assert keys.find(KEY) == Known("digest", ANSWER, "trace/a")


def test_after_a_day_a_key_is_new(keys: Idempotency, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10**18
    monkeypatch.setattr("service.store.idempotency.time.time_ns", lambda: now)
    keys.begin(KEY, "digest")
    keys.answered(KEY, ANSWER)
    now += KEPT_S * 10**9 - 1
    assert keys.find(KEY)
    now += 1
    assert keys.find(KEY) is None
    keys.begin(Key("other", ""), "digest")
    assert len(keys._rows("SELECT * FROM idempotency")) == 1

"""The error tree is as drawn, and each error tells a client what it needs."""

import inspect
import re

import orjson

from service.trace import errors
from service.trace.errors import NotJson, TracedockError

TREE = [
    one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TracedockError)
]  # fmt: skip


def test_the_tree_at_the_top_of_the_module_names_every_error_and_no_other() -> None:
    assert errors.__doc__

    drawn = re.findall(r"^[│├└─ ]*(\w+)(?: {2,}|$)", errors.__doc__.split("\n\n", 1)[1], re.MULTILINE)

    assert sorted(filter(None, drawn)) == sorted(one.__name__ for one in TREE)


def test_errors_that_are_raised_have_codes_of_their_own() -> None:
    leaves = [one for one in TREE if not one.__subclasses__()]
    codes = [one.code for one in leaves]

    assert len(set(codes)) == len(codes)
    assert "internal" not in codes
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_an_error_becomes_json_with_what_it_carries() -> None:
    told = orjson.loads(orjson.dumps(NotJson("No JSON at byte 7.", offset=7).as_dict()))

    assert told == {"code": "not_json", "title": NotJson.title, "detail": "No JSON at byte 7.", "offset": 7}

"""The docstring of `errors` shows the whole tree of errors; each error has a code and facts."""

import inspect
import re

import orjson
import pytest

from service.trace import errors
from service.trace.errors import ErrorDocument, NotJson, TracedockError, error_from_document

TREE = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TracedockError)]


def test_module_docstring_names_exactly_the_errors_of_the_module() -> None:
    assert errors.__doc__

    names = re.findall(r"^[│├└─ ]*(\w+)(?: {2,}|$)", errors.__doc__.split("\n\n", 1)[1], re.MULTILINE)

    assert sorted(filter(None, names)) == sorted(kind.__name__ for kind in TREE)


def test_codes_of_raised_errors_are_unique() -> None:
    leaves = [kind for kind in TREE if not kind.__subclasses__()]
    codes = [kind.code for kind in leaves]

    assert len(set(codes)) == len(codes)
    assert "internal" not in codes
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_error_serialises_with_its_facts() -> None:
    document = orjson.loads(orjson.dumps(NotJson("No JSON at byte 7.", offset=7).as_dict()))

    assert document == {"code": "not_json", "title": NotJson.title, "detail": "No JSON at byte 7.", "offset": 7}


@pytest.mark.parametrize(
    "values",
    [
        NotJson("No JSON at byte 7.", offset=7).as_dict(),
        {"code": "of_another_version", "title": "A title", "detail": "A detail.", "known": [1, None]},
    ],
)
def test_document_keeps_all_of_an_error(values: dict[str, object]) -> None:
    assert ErrorDocument.from_dict(values).as_dict() == values


def test_error_of_an_unknown_code_keeps_its_detail_and_facts() -> None:
    error = error_from_document(ErrorDocument("of_another_version", "A title", "A detail.", {"offset": 7}))

    assert (type(error), error.detail, error.extra) == (TracedockError, "A detail.", {"offset": 7})

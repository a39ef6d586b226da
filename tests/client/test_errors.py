from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from tracedock import errors
from tracedock.errors import KINDS, STATUSES, ApiError, kind_of

from service.http.problems import status_of
from service.trace.errors import TracedockError

OWN = {"internal", "unexpected_answer"}
"""Codes that are not those of an error class of the server."""


def server_errors(kind: type[TracedockError] = TracedockError) -> Iterator[type[TracedockError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from server_errors(subclass)


def codes() -> dict[str, int]:
    """Return the status of each code of the server."""
    return {kind.code: status_of(kind("")) for kind in server_errors() if "code" in vars(kind)}


@pytest.mark.parametrize(("code", "status"), sorted(codes().items()))
def test_each_code_of_the_server_has_a_kind_of_error(code: str, status: int) -> None:
    error = ApiError.of_problem({"code": code, "title": "T", "detail": "D"}, status)
    assert type(error) is kind_of(code, status)
    assert type(error) is not ApiError
    assert (error.code, error.status) == (code, status)


def test_table_of_kinds_has_no_code_that_the_server_lacks() -> None:
    listed = [code for kind_codes in KINDS.values() for code in kind_codes]
    assert len(listed) == len(set(listed))
    assert set(listed) - codes().keys() == OWN


def test_table_of_statuses_has_only_statuses_of_the_server() -> None:
    assert set(STATUSES) <= set(codes().values())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unknown_trace", errors.NotFoundError),
        ("unknown_analysis", errors.NotFoundError),
        ("upload_gone", errors.NotFoundError),
        ("bad_selection", errors.SelectionError),
        ("nothing_selected", errors.SelectionError),
        ("sql_error", errors.SqlError),
        ("sql_refused", errors.SqlError),
        ("no_room", errors.NoRoomError),
        ("disk_full", errors.NoRoomError),
        ("unauthorized", errors.UnauthorizedError),
        ("forbidden_scope", errors.ForbiddenError),
        ("wrong_host", errors.ForbiddenError),
        ("query_timeout", errors.DeadlineError),
        ("group_exists", errors.ConflictError),
        ("not_ready", errors.NotReadyError),
        ("not_applicable", errors.NotApplicableError),
        ("not_a_trace", errors.UnreadableTraceError),
        ("result_too_large", errors.TooLargeError),
        ("engine_busy", errors.BusyError),
        ("engine_failed", errors.ServerFailureError),
        ("unknown_parameter", errors.InvalidRequestError),
    ],
)
def test_programs_can_tell_refusals_apart(code: str, kind: type[ApiError]) -> None:
    assert kind_of(code, codes()[code]) is kind


def test_unknown_code_has_the_kind_of_its_status() -> None:
    assert kind_of("new_code", 404) is errors.NotFoundError
    assert kind_of("new_code", 418) is errors.InvalidRequestError
    assert kind_of("new_code", 599) is errors.ServerFailureError


def test_refused_selections_and_sql_are_invalid_requests() -> None:
    assert issubclass(errors.SelectionError, errors.InvalidRequestError)
    assert issubclass(errors.SqlError, errors.InvalidRequestError)
    assert issubclass(errors.NotReadyError, errors.ConflictError)


def test_error_of_the_api_survives_pickling() -> None:
    error = ApiError.of_problem({"code": "sql_error", "title": "T", "detail": "D", "line": 1}, 400)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.SqlError
    assert (copy.code, copy.position, str(copy)) == ("sql_error", "line 1", str(error))


def test_module_draws_the_tree_of_all_its_errors() -> None:
    drawn = [line.split("─ ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "─ " in line]
    kinds = [
        kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.ClientError
    ]
    assert sorted(drawn) == sorted(name for name in kinds if name.endswith("Error"))

from __future__ import annotations

import inspect

import pytest
from tracedock import AsyncClient, Client

from tests.client.generated import ASYNCHRONOUS, BY_HAND, MODULES, SYNCHRONOUS, synchronous


@pytest.mark.parametrize("module", MODULES)
def test_synchronous_module_is_generated_from_the_asynchronous_one(module: str) -> None:
    current = (SYNCHRONOUS / module).read_text()
    assert current == synchronous((ASYNCHRONOUS / module).read_text()), "python -m tests.client"


def test_synchronous_folder_has_no_other_module() -> None:
    assert {path.name for path in SYNCHRONOUS.glob("*.py")} == {*MODULES, *BY_HAND}


def test_synchronous_modules_do_nothing_asynchronous() -> None:
    for module in MODULES:
        text = (SYNCHRONOUS / module).read_text().split("\n", 1)[1]  # the first line names the source
        assert [word for word in ("async", "await", "Async") if word in text] == [], module


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    def methods(kind: type) -> dict[str, list[tuple[str, object]]]:
        return {
            name: [(each.name, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") and name != "analysis"  # whose default is a function of each
        }

    assert methods(Client) == methods(AsyncClient)
    assert {"upload", "sql", "analyze", "split", "merge", "groups", "download", "open"} <= methods(Client).keys()

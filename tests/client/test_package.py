"""The package needs Python 3.9, httpx and nothing else, and is imported in no time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracedock

from tests.docs.pages import ROOT

PACKAGE = Path(tracedock.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
OPTIONAL = {"pyarrow", "pandas", "polars"}
TYPES = {"str", "int", "float", "bool", "bytes", "dict", "list", "tuple", "set", "None", "object"}
NEWER_TYPING = {
    *("TypeAlias", "ParamSpec", "Concatenate", "TypeGuard", "Self", "Never", "Unpack", "Required", "NotRequired"),
    *("LiteralString", "TypeVarTuple", "assert_never", "assert_type", "reveal_type", "override", "StrEnum"),
}
"""Names that `typing` has only since Python 3.10 or later."""


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        yield from imports(node)


def evaluated(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those of annotations, which are texts at run time."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield node
                yield from evaluated(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_module_is_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert [name for module, name in imports(tree) if module.startswith("typing") and name in NEWER_TYPING] == []
    unions = [
        node
        for node in evaluated(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
        for side in (node.left, node.right)
        if (isinstance(side, ast.Constant) and side.value is None) or (isinstance(side, ast.Name) and side.id in TYPES)
    ]
    assert unions == []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not any(keyword.arg in ("strict", "slots", "kw_only") for call in calls for keyword in call.keywords)


def test_module_needs_httpx_and_the_standard_library_alone() -> None:
    used = {module.split(".")[0] for path in MODULES for module, _ in imports(ast.parse(path.read_text()))}
    assert used - set(sys.stdlib_module_names) == {"httpx", "tracedock"}


def loaded_by(code: str) -> set[str]:
    """Return the top packages that a program has loaded in a new interpreter."""
    program = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def test_import_of_the_package_loads_nothing_else() -> None:
    assert {"httpx", "asyncio", "service", *OPTIONAL} & loaded_by("import tracedock") == set()


def test_client_and_its_command_line_load_no_optional_package() -> None:
    assert {"service", "numpy", *OPTIONAL} & loaded_by("import tracedock; tracedock.Client, tracedock.Table") == set()
    assert {"httpx", "asyncio", "service"} & loaded_by("import tracedock.command") == set()


def test_package_has_the_names_that_it_lists() -> None:
    assert all(getattr(tracedock, name) is not None for name in tracedock.__all__)
    assert set(tracedock.__all__) <= set(dir(tracedock))
    with pytest.raises(AttributeError, match="nothing"):
        _ = tracedock.nothing


def test_package_is_typed_and_has_the_version_of_its_project() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert f'version = "{tracedock.__version__}"' in (ROOT / "client" / "pyproject.toml").read_text()

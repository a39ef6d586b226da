"""The documents list exactly the settings, routes, commands, analyses and error codes of the code; their links work."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

from service.analysis.catalogue import QUESTIONS
from service.cli.main import app
from tests.docs.generated import PARTS, regenerated
from tests.docs.pages import PAGES, ROOT, blocks
from tests.server import Server

DOCS = ROOT / "docs"
GUIDES = [
    "tour", "api", "client", "command-line", "selections", "analyses", "gate", "sql", "importing", "training",
    "fleet", "scale", "engines", "security", "agents",
]  # fmt: skip
REFERENCES = ["deployment", "settings", "ARCHITECTURE"]
DEVELOPER_PAGES = [DOCS / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
SELECTION_OPTION = "--steps"  # a command with this option has all options of a selection
_ROUTE = re.compile(r"`(GET|PUT|POST|PATCH|DELETE|HEAD|OPTIONS) (/[^`?]*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_generated_parts_of_a_page_agree_with_the_code(page: Path) -> None:
    assert page.read_text() == regenerated(page.read_text()), f"run python -m tests.docs {page.relative_to(ROOT)}"


def test_each_generated_part_is_on_one_page() -> None:
    names = [
        name for page in PAGES for name in re.findall(r"^<!-- from code: (\w+) -->$", page.read_text(), re.MULTILINE)
    ]
    assert sorted(names) == sorted(PARTS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_analyses_page_has_the_definition_of_each_analysis(name: str) -> None:
    page = (DOCS / "analyses.md").read_text()
    assert f"### {name}\n\n{QUESTIONS[name].definition}\n" in page


def test_api_page_lists_every_route_and_no_other(server: Server) -> None:
    paths = server.api.get(f"{server.url}/openapi.json").json()["paths"]
    routes = {
        (method.upper(), _general(path.removeprefix("/api/v1")))
        for path, methods in paths.items()
        for method in methods
    }
    listed = set(_ROUTE.findall((DOCS / "api.md").read_text()))
    routes_outside_openapi = {("POST", "/login"), ("POST", "/logout"), ("POST", "/mcp")}
    assert listed == routes | routes_outside_openapi


def test_command_line_page_lists_every_command_and_option() -> None:
    page = (DOCS / "command-line.md").read_text()
    table_rows = re.findall(r"^\| `tracedock .*$", page, re.MULTILINE)
    rows = {row.split("`")[1].split()[1]: row for row in table_rows}  # by the word after `tracedock`
    selection_section = page.split("## Options of a selection")[1].split("## Examples")[0]
    assert "`--json` prints one JSON document" in page.split("## Output")[1]  # of all commands, so that no row has it
    commands = {name: [option for option in options if option != "--json"] for name, options in _commands()}
    assert rows.keys() == {name.split()[0] for name in commands}
    for name, options in commands.items():
        row = rows[name.split()[0]]
        assert all(word in row for word in name.split())
        text = row + (selection_section if SELECTION_OPTION in options else "")
        assert [option for option in options if not _is_listed(option, text)] == [], name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_workflow_exist_with_their_options(page: Path) -> None:
    """The steps of a workflow are not run, because they need its machine."""
    options_of = dict(_commands())
    workflows = [block.text for block in blocks(page.read_text()) if block.language == "yaml"]
    for line in re.findall(r"\btracedock (.*)$", "\n".join(workflows), re.MULTILINE):
        words = shlex.split(line)
        name = " ".join(words[:2]) if " ".join(words[:2]) in options_of else words[0]
        assert {word for word in words if word.startswith("--")} <= {*options_of[name]}, line


def test_command_line_page_has_the_exit_codes_of_the_help() -> None:
    epilog = str(get_command(app).epilog)
    assert epilog.removesuffix(".") in (DOCS / "command-line.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_have_targets(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, link


def test_readme_is_short_and_links_every_page_of_docs() -> None:
    readme = (ROOT / "README.md").read_text()
    assert {page.stem for page in DOCS.glob("*.md")} == {*GUIDES, *REFERENCES}
    assert [page for page in [*GUIDES, *REFERENCES] if f"(docs/{page}.md)" not in readme] == []
    assert len(readme.splitlines()) <= 130


@pytest.mark.parametrize("page", DEVELOPER_PAGES, ids=lambda page: page.stem)
def test_paths_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"```(?!text).*?```", "", page.read_text(), flags=re.DOTALL)
    names = set(re.findall(r"`((?:service|tests|docs|docker)(?:/[\w.*<>-]+)*/?)`", text))
    modules = set(re.findall(r"`((?:service|tests)(?:\.\w+)+)`", text))
    assert names
    missing = [name for name in names if "<" not in name and not any(ROOT.glob(name.rstrip("/")))]
    missing += [name for name in modules if not _is_module(name)]
    assert missing == []


def test_architecture_names_every_package_of_the_service() -> None:
    text = (DOCS / "ARCHITECTURE.md").read_text()
    packages = [path.parent.name for path in (ROOT / "service").glob("*/__init__.py")]
    assert [package for package in packages if f"`service/{package}/`" not in text] == []


def _is_listed(option: str, text: str) -> bool:
    """Return whether a text lists an option, or its form that begins with `--no-`."""
    return any(re.search(rf"{form}(?![\w-])", text) for form in (option, option.replace("--", "--no-", 1)))


def _general(path: str) -> str:
    """Replace the name of an analysis or of a question in a path with `{name}`, as on the page."""
    return re.sub(r"^(/(?:traces|groups|datasets)/.*/(?:analysis|questions)/)\w+$", r"\1{name}", path)


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the words of each command, and its options except `--help`."""
    root = get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined] # Typer's own group has them
        children = getattr(command, "commands", {})
        yield name, _options(command)
        for child_name, child in children.items():
            yield f"{name} {child_name}", _options(child)


def _options(command: object) -> list[str]:
    """Return the last form that begins with `--` of each option except `--help`."""
    parameters = command.params  # type: ignore[attr-defined] # an attribute of click's commands
    return [
        next(option for option in reversed(parameter.opts) if option.startswith("--"))
        for parameter in parameters
        if parameter.param_type_name == "option" and "--help" not in parameter.opts
    ]

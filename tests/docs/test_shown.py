"""Every command, program and query that the documents show runs, and prints what they show."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.analysis.catalogue import QUESTIONS
from service.analysis.names import OF_SNAPSHOTS
from service.trace.selection import Selection
from tests.docs.pages import EXAMPLES, PAGES, ROOT, agree, blocks, commands
from tests.docs.shell import Shell, shell

LANGUAGES = {"console", "json", "mermaid", "python", "sh", "sql", "text", "yaml"}
FAILURE = "error: "
OF_OTHER_INPUTS = {"counters", *OF_SNAPSHOTS}
"""Analyses of what the examples lack: hardware counters, and memory snapshots."""
SERVERS = "mcpServers"
"""Key of the configuration of agents."""
EXAMPLE_PROGRAMS = [path.read_text() for path in EXAMPLES.glob("*.py")]
"""Programs that need torch; `tests/client/test_training_example.py` runs them."""


@pytest.fixture(scope="module")
def terminal() -> Iterator[Shell]:
    with shell() as opened:
        yield opened


@pytest.mark.system
@pytest.mark.timeout(900)  # each page starts dozens of processes
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_print_what_it_shows(terminal: Shell, page: Path) -> None:
    terminal.clear()
    for block in blocks(page.read_text()):
        if block.language == "console":
            for command in commands(block.text):
                status, output = terminal.run(command.text)
                assert agree(command.output, output), f"$ {command.text}\n{output}\n--- is shown as\n{command.output}"
                assert (status != 0) == (FAILURE in command.output), command.text
        if block.language == "python" and block.text not in EXAMPLE_PROGRAMS:
            status, output = terminal.python(block.text)
            assert status == 0, output
            assert block.output is None or agree(block.output, output), output
        if block.language == "sql":
            status, output = terminal.run(f"tracedock query gpt_rank0.pt.trace.json.gz - <<'SQL'\n{block.text}SQL")
            assert status == 0, output
            assert len(output.splitlines()) > 1, f"no row: {block.text}"
            assert block.output is None or agree(block.output, output), f"{block.text}\n{output}"


@pytest.mark.timeout(300)
def test_every_analysis_of_what_the_examples_have_answers(terminal: Shell) -> None:
    terminal.clear()
    first, second = (terminal.server.upload(file)["id"] for file in sorted(EXAMPLES.glob("*.json.gz")))

    for name, question in QUESTIONS.items():
        answer = terminal.server.api.get(f"/traces/{first}/analysis/{name}", params={"traces": second})
        assert (answer.status_code == 200) == (name not in OF_OTHER_INPUTS), name
        if name not in OF_OTHER_INPUTS:
            assert answer.json()["tables"][next(iter(question.tables))]["rows"], name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_of_a_page_have_a_tested_language(page: Path) -> None:
    assert {block.language for block in blocks(page.read_text())} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_json_of_a_page_is_a_selection(page: Path) -> None:
    """Other JSON on a page configures agents; `tests/agents/test_documents.py` connects with it."""
    for block in blocks(page.read_text()):
        if block.language == "json" and SERVERS not in (document := json.loads(block.text)):
            Selection.model_validate(document)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_targets_of_make_that_a_page_names_exist(page: Path) -> None:
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ": " in line}
    for block in blocks(page.read_text()):
        for line in block.text.splitlines():
            if block.language == "sh" and line.startswith("make "):
                assert line.split()[1] in targets


def test_an_output_agrees_up_to_ids_times_and_ellipses() -> None:
    assert agree("id a1b2c3d4e5f6 …", "id 0123456789ab is ready ")
    assert agree("a\n…\nz", "a\nb\nc\nz")
    assert agree("a\n…\nz", "a\nz")
    assert agree("", "")
    assert not agree("a\n…", "b\nc")
    assert not agree("7 events", "8 events")
    assert not agree("", "a")

"""Bring the documents up to date: `python -m tests.docs [--code] [PAGE…]`.

Rewrites outputs that differ from what their commands print, and generated parts that differ from the code. With
`--code`, rewrites the generated parts only, which takes a second. A rewritten output loses its `…`: read the diff
before a commit.
"""

import sys
from pathlib import Path

from tests.docs.generated import regenerated
from tests.docs.pages import PAGES, Block, agree, blocks, commands
from tests.docs.shell import Shell, shell


def renewed(page: str, terminal: Shell) -> str:
    """Return the page with each outdated output replaced by what its command prints now."""
    pieces, at = [], 0
    printed: str | None = None  # by the program just before
    for block in blocks(page):
        text = _answered(block, terminal) if printed is None else printed
        printed = _printed(block, terminal)
        pieces += [page[at : block.start], text]
        at = block.start + len(block.text)
    return "".join([*pieces, page[at:]])


def _printed(block: Block, terminal: Shell) -> str | None:
    """Return the text for the block after a program, or None if the program has none, or the block is none."""
    if block.language != "python":
        return None
    _, output = terminal.python(block.text)  # also without an output: later blocks may need what it does
    if block.output is None:
        return None
    shown = block.output if agree(block.output, output) else output + "\n"
    return "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"


def _answered(block: Block, terminal: Shell) -> str:
    if block.language != "console":
        return block.text
    lines = []
    for command in commands(block.text):
        _, output = terminal.run(command.text)
        shown = command.output if agree(command.output, output) else output
        lines += ["$ " + command.text.replace("\n", "\n> "), *filter(None, [shown])]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def _main(words: list[str]) -> None:
    pages = [Path(word).resolve() for word in words if word != "--code"] or PAGES
    if "--code" in words:
        for page in pages:
            _write(page, regenerated(page.read_text()))
        return
    with shell() as terminal:
        for page in pages:
            terminal.clear()
            _write(page, regenerated(renewed(page.read_text(), terminal)))


def _write(page: Path, text: str) -> None:
    if text != page.read_text():
        page.write_text(text)
        print(f"{page.name} is written anew")  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1:])

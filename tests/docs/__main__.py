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
    """Return the page with each outdated output replaced by what its command or program prints now."""
    pieces, at, printed = [], 0, ""
    for block in blocks(page):
        text = printed if printed and not agree(block.text.rstrip(), printed.rstrip()) else _answered(block, terminal)
        has_output = block.language == "python" and block.output is not None
        printed = f"{terminal.python(block.text)[1]}\n" if has_output else ""
        pieces += [page[at : block.start], text]
        at = block.start + len(block.text)
    return "".join([*pieces, page[at:]])


def _answered(block: Block, terminal: Shell) -> str:
    if block.language == "python":
        terminal.python(block.text)  # later commands may read what it writes
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

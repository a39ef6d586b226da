"""The documentation pages: their code blocks, the commands in these, and the comparison of outputs."""

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "client/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"\b[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z")
_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the text of the block right after it if that is an output.

    Attributes:
        language: the word after the opening fence.
        text: the lines between the fences.
        start: offset of `text` in the page.
        output: text of the `text` block that follows, with at most a line `prints:` between them, else None.
    """

    language: str
    text: str
    start: int
    output: str | None = None


@dataclass(frozen=True)
class Command:
    """A command of a `console` block, and the output that is shown below it."""

    text: str
    output: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    matches = list(_BLOCK.finditer(page))
    return [
        Block(match[1], match[2], match.start(2), after[2] if after and _is_output(page, match, after) else None)
        for match, after in zip_longest(matches, matches[1:])
    ]


def commands(block: str) -> list[Command]:
    """The commands of a `console` block: each begins at `$ `, and its continuation lines begin with `> `."""
    parsed = []
    for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        first, *output = text.splitlines()
        lines = [first]
        while output and output[0].startswith("> "):
            lines.append(output.pop(0).removeprefix("> "))
        parsed.append(Command("\n".join(lines), "\n".join(output).rstrip()))
    return parsed


def agree(shown: str, output: str) -> bool:
    """Return whether an output matches the output on a page.

    Ids of 12 hexadecimal digits and times of the day may differ. `…` in a line stands for any text, and a line of
    nothing but `…` for any lines.
    """
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line.strip() == "…" else r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in _normalized(shown).splitlines()
    )
    return re.fullmatch(pattern, _normalized(output) + "\n" if output else "") is not None


def _normalized(text: str) -> str:
    """The text with all ids and times replaced by constants, without trailing spaces."""
    text = _TIME.sub("2026-01-01T00:00:00.000Z", _ID.sub("0123456789ab", text))
    text = _MINUTE.sub("2026-01-01 00:00", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _is_output(page: str, block: "re.Match[str]", after: "re.Match[str]") -> bool:
    return after[1] == "text" and page[block.end() : after.start()].strip() in {"", "prints:"}

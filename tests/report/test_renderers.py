"""HTML and Markdown hold the same figures, and no text of a trace becomes markup."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from service.report.document import (
    CODE,
    Advice,
    Bar,
    Bars,
    Block,
    Column,
    Fact,
    Report,
    Section,
    Sentence,
    Series,
    Table,
    Unknown,
)
from service.report.html import STYLE, as_html
from service.report.markdown import as_markdown

HOSTILE = [
    "<script>alert(1)</script>", "a|b", "`code`", "``", "[link](http://x.example)", "![image](http://x.example)",
    "**bold**", "_a_", "@team", "#1", "</style>", "line\nbreak", "\\", "&lt;", "- item", "www.x.example",
]  # fmt: skip


def report_of(text: str) -> Report:
    """Return a report in which all texts that may come from a trace are `text`."""
    bars = Bars(
        "Time", [Series("compute", "computing"), Series("idle", "idle")], [Bar(text, [3_000_000, 1_000_000])], 2
    )
    table = Table("Kernels", [Column("Kernel", CODE), Column("Note"), Column("Time", "ns")], [[text, text, 1500]], 7)
    advice = Advice("Do it.", text, [Fact("kernels", 2), Fact("time", 1_000_000, "ns")])
    blocks: list[Block] = [Sentence(text), bars, table, advice, Unknown(text)]
    section = Section("Where the time goes", blocks, "The definition.", f"GET /{text}")
    return Report(text, [Fact("Host", text), Fact("Rank", None)], [text], [section], "1.2.3")


class Parsed(HTMLParser):
    """The elements, the attributes and the texts of a document."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


TAGS = Parsed(as_html(report_of("plain"))).tags


@given(st.one_of(st.sampled_from(HOSTILE), st.text()))
def test_text_of_a_trace_is_only_text_in_html(text: str) -> None:
    parsed = Parsed(as_html(report_of(text)))
    assert parsed.tags == TAGS
    assert "script" not in parsed.tags
    assert not {name for name, _ in parsed.attributes} & {"src", "href", "style", "onload", "onclick"}
    shown = "".join(parsed.texts).replace("\r\n", "\n").replace("\r", "\n")
    assert text.replace("\r\n", "\n").replace("\r", "\n") in shown


def test_style_sheet_needs_no_network() -> None:
    assert "url(" not in STYLE
    assert "@import" not in STYLE


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def flat(tokens: list[Token]) -> list[Token]:
    return [token for parent in tokens for token in (parent, *flat(parent.children or []))]


def kinds(text: str) -> list[str]:
    """Return the kinds of the parts of a Markdown text."""
    return [token.type for token in flat(MARKDOWN.parse(text)) if token.type != "text"]


@given(st.one_of(st.sampled_from(HOSTILE), st.text()).filter(lambda text: text.split()))
def test_text_of_a_trace_is_only_text_in_markdown(text: str) -> None:
    written = as_markdown(report_of(text))
    assert kinds(written) == kinds(as_markdown(report_of("plain")))
    line = " ".join(text.replace("\0", "\ufffd").split())
    tokens = flat(MARKDOWN.parse(written))
    heading = next(token for token in tokens if token.type == "inline")
    assert "".join(part.content for part in heading.children or []) == line
    code = next(token.content for token in tokens if token.type == "code_inline")
    assert code == (line if len(line) <= 100 else f"{line[:99]}…")


@pytest.mark.parametrize("text", ["see http://x.example", "www.x.example", "@team", "a@x.example"])
def test_markdown_holds_no_link_or_mention_that_github_would_make(text: str) -> None:
    outside_code = re.sub(r"`[^`]+`", "", as_markdown(report_of(text)))
    assert not re.search(r"@|://|www\.", outside_code)


def test_both_forms_have_all_figures() -> None:
    parsed, markdown = Parsed(as_html(report_of("name"))), as_markdown(report_of("name"))
    html = " ".join("".join(parsed.texts).split())
    for text in ("3 ms", "1 ms", "1.5 µs", "Where the time goes", "Do it.", "GET /name", "1.2.3"):
        assert text in html + str(parsed.attributes)
        assert text in markdown
    assert "75 %" in markdown
    assert "3,000,000 ns, 75 %" in str(parsed.attributes)
    assert "Rank: unknown" in markdown
    assert "the first 1 of 8" in html
    assert "the first 1 of 8" in markdown
    assert "2 more are left out" in html
    assert "(the first 1 of 3)" in markdown

"""The captured traces match their README, and reveal nothing about the machine that wrote them."""

import gzip
import json
import re
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
TRACES = sorted(DATA.glob("*.pt.trace.json.gz"))
FILES = [*TRACES, *sorted(DATA.glob("figures/*"))]
README = (DATA / "README.md").read_text()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_readme_has_the_event_and_step_counts_of_each_trace(path: Path) -> None:
    document = json.loads(gzip.decompress(path.read_bytes()))
    steps = {event["name"] for event in document["traceEvents"] if event["name"].startswith("ProfilerStep#")}

    row = re.search(rf"^\| `{re.escape(path.name)}` \|.*\| ([\d,]+) \| (\d+) \|$", README, re.MULTILINE)

    assert row
    assert int(row[1].replace(",", "")) == len(document["traceEvents"])
    assert int(row[2]) == len(steps)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".gz"))
def test_a_captured_file_is_small_and_names_no_absolute_path(path: Path) -> None:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    assert len(content) < 150_000
    assert not re.findall(rb'"/[a-z]|/home/|/root|/tmp/|/opt/|[Tt]oken|[Ss]ecret', text)

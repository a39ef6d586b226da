"""The reference of the package `torch` is complete, and its examples run."""

import json
import re
from pathlib import Path

import pytest

from service.engine.sql import PACKAGE, REFERENCE
from tests.conftest import DATA
from tests.engine.torch_oracle import Oracle, engine_on, read
from tests.traces import TraceShape, trace_chunks

SECTIONS = {
    f"torch.{name}": text
    for name, text in re.findall(r"^## torch\.(\w+)\n(.*?)(?=^## |\Z)", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)
}
EXAMPLES = [
    (module, example)
    for module, text in SECTIONS.items()
    for example in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
]
PUBLIC = re.compile(r"CREATE OR REPLACE PERFETTO (TABLE|VIEW|FUNCTION) (torch_\w+)")
PRIVATE = {"torch.nesting"}


def traces() -> list[Oracle]:
    """Return traces that together contain kernels, NCCL, memory and gloo."""
    generated = json.loads(b"".join(trace_chunks(TraceShape(steps=3))))
    names = ["cpu_stack_memory.pt.trace.json.gz", "cpu_gloo_rank0_of_2.pt.trace.json.gz"]
    return [Oracle([generated], [0]), *(Oracle([read(DATA / name)], [1]) for name in names)]


def test_every_module_has_a_section_with_an_example() -> None:
    modules = {f"torch.{file.stem}" for file in PACKAGE.glob("*.sql")}
    assert SECTIONS.keys() == modules - PRIVATE
    assert {module for module, _ in EXAMPLES} == SECTIONS.keys()


def test_public_names_are_documented_in_the_section_of_their_module() -> None:
    for file in PACKAGE.glob("*.sql"):
        for _, name in PUBLIC.findall(file.read_text()):
            assert f"`{name}" in SECTIONS[f"torch.{file.stem}"]


@pytest.mark.parametrize(("module", "example"), EXAMPLES, ids=[module for module, _ in EXAMPLES])
async def test_examples_run_and_have_rows(engine: Path, module: str, example: str) -> None:
    answers = []
    for oracle in traces():
        async with engine_on(engine, oracle) as sql:
            answers.append(await sql(example))
    assert f"INCLUDE PERFETTO MODULE {module};" in example
    assert any(answers)


async def test_documented_columns_are_those_of_the_tables(engine: Path) -> None:
    shared_columns = {"torch_gpu_step": ["step", "name", "ts", "dur", "id", "utid", "rank"]}
    async with engine_on(engine, traces()[0]) as sql:
        for module, text in SECTIONS.items():
            source = PACKAGE.joinpath(f"{module.removeprefix('torch.')}.sql").read_text()
            await sql(f"INCLUDE PERFETTO MODULE {module}")
            for kind, name in PUBLIC.findall(source):
                if kind == "FUNCTION":
                    continue
                columns = [row["name"] for row in await sql(f"SELECT name FROM pragma_table_info('{name}')")]
                [table] = re.findall(
                    rf"^`{name}`.*?\| column \| \|\n\|---\|---\|\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL
                )
                documented = shared_columns.get(name, []) + re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
                assert documented == columns
                [declared] = re.findall(rf"PERFETTO {kind} {name}\((.*?)\n\) AS", source, re.DOTALL)
                commented = re.findall(r"^  -- [^\n]+\n  (\w+) ", declared, re.MULTILINE)
                assert commented == columns

"""The parts of the documents that are written from the code: between `<!-- from code: NAME -->` and `<!-- end -->`."""

import inspect
import json
import re

from tracedock.errors import KINDS, STATUSES, InvalidRequestError, ServerFailureError

from service.agents.tools.catalogue import TOOLS
from service.analysis.catalogue import QUESTIONS
from service.formats.names import FOLDERS
from service.http.problems import problem_kinds
from service.settings import Settings
from service.streaming.codec import Compression
from tests.docs.pages import EXAMPLES

_PART = re.compile(r"^(<!-- from code: (\w+) -->\n)(.*?)^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def regenerated(page: str) -> str:
    """Return a page with its generated parts rewritten from the code."""
    return _PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}\n{match[4]}", page)


def settings() -> str:
    """The table of all settings."""
    rows = [
        f"| `TRACEDOCK_{name.upper()}` | {_default(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def formats() -> str:
    """The table of all formats, with the ends of the names of their files."""
    rows = [f"| `{name}` | {', '.join(f'`.{name}{compression}`' for compression in Compression)} |" for name in FOLDERS]
    return "\n".join(["| format | names end in |", "|---|---|", *rows])


def questions() -> str:
    """The table of all analyses."""
    rows = [f"| [`{name}`](#{name}) | {question.short_question} |" for name, question in QUESTIONS.items()]
    return "\n".join(["| name | answers |", "|---|---|", *rows])


def definitions() -> str:
    """A section for each analysis: its definition, source, tables and parameters."""
    return "\n\n".join(_definition(name) for name in QUESTIONS)


def tools() -> str:
    """The table of the tools of agents."""
    rows = [f"| `{tool.name}` | {tool.description} |" for tool in TOOLS.values()]
    return "\n".join(["| tool | what agents read about it |", "|---|---|", *rows])


def problems() -> str:
    """The table of all error codes, by status."""
    table = [f"| {kind.status} | `{kind.code}` | {kind.title}. |" for kind in problem_kinds()]
    return "\n".join(["| status | code | title |", "|---|---|---|", *table])


def training_example() -> str:
    """The example of a training job, as a block of code."""
    return f"```python\n{(EXAMPLES / 'train_ddp.py').read_text()}```"


def client_errors() -> str:
    """The table of the client's kinds of errors, with the codes or the statuses of each."""
    statuses = {kind: [status for status, each in STATUSES.items() if each is kind] for kind in STATUSES.values()}
    rows = []
    for kind in [*STATUSES.values(), *KINDS, InvalidRequestError]:
        of_kind = [f"`{code}`" for code in KINDS.get(kind, ())] + [f"status {each}" for each in statuses.get(kind, ())]
        if kind is InvalidRequestError:
            of_kind = ["other statuses from 400 to 499"]
        elif kind is ServerFailureError:
            of_kind.append("other statuses from 500")
        rows.append(f"| `{kind.__name__}` | {inspect.getdoc(kind)} | {', '.join(of_kind)} |")
    return "\n".join(["| class | meaning | codes |", "|---|---|---|", *dict.fromkeys(rows)])


def _definition(name: str) -> str:
    question = QUESTIONS[name]
    tables = ", ".join(f"`{table}`" for table in question.tables)
    parts = [f"### {name}", question.definition, f"Tables: {tables}. [Reference]({question.source})."]
    parameters = question.parameters.model_fields
    if parameters:
        rows = [
            f"| `{parameter}` | `{_parameter_default(field.default)}` | {field.description} |"
            for parameter, field in parameters.items()
        ]
        parts.append("\n".join(["| parameter | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _parameter_default(value: object) -> str:
    """Return a default as JSON; a text that is not empty, as it is written in a URL."""
    return value if value and isinstance(value, str) else json.dumps(value)


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 30 and value % (1 << 30) == 0:
        return f"{value >> 30} GiB"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


PARTS = {
    "formats": formats,
    "settings": settings,
    "questions": questions,
    "definitions": definitions,
    "tools": tools,
    "problems": problems,
    "training_example": training_example,
    "client_errors": client_errors,
}

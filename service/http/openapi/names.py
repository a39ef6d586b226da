"""Names of choices that generated clients share. Without them, each operation would have classes of its own."""

from typing import Any, Literal, get_args, get_origin

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.activity import Rules
from service.analysis.facts.step_windows import StepBounds
from service.analysis.parameters import Parameters, WorkParameters
from service.formats.attachments import AttachmentKind
from service.formats.names import FILE_FORMATS
from service.http.routes.analysis import Form
from service.http.routes.reports import ReportForm
from service.http.shapes import BaselineKind, JobPriority
from service.jobs.children.tasks.datasets import DatasetStatus
from service.store.file_import import Mode
from service.trace.piece import Align, By
from service.trace.selection_fields import Args, Straddle, ViewSource
from service.trace.summary import ExternalIdKind, InputKind

SCHEMA_NAMES = {"State": "TraceState", "Scope": "TokenScope"}
"""Names of schemas whose classes have names that are clear only within their modules."""


def pascal_case(name: str) -> str:
    """Return a name in Pascal case, like `TraceId` for ``trace_id`` and `IfNoneMatch` for ``If-None-Match``."""
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))


def _choices(parameters: type[Parameters]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each parameter of an analysis that is a choice."""
    annotations = {name: field.annotation for name, field in parameters.model_fields.items()}
    return {name: get_args(kind) for name, kind in annotations.items() if get_origin(kind) is Literal}


_OF_WORK = _choices(WorkParameters)
_SHARED: dict[str, tuple[Any, ...]] = (
    {
        name: get_args(literal)
        for name, literal in {
            "ActivityRules": Rules,
            "Alignment": Align,
            "AnalysisFormat": Form,
            "AttachmentKind": AttachmentKind,
            "BaselineKind": BaselineKind,
            "DatasetState": DatasetStatus,
            "EventArgs": Args,
            "ExternalIdKind": ExternalIdKind,
            "ImportMode": Mode,
            "InputKind": InputKind,
            "JobPriority": JobPriority,
            "ReportFormat": ReportForm,
            "SplitBy": By,
            "StepBounds": StepBounds,
            "Straddle": Straddle,
            "ViewSource": ViewSource,
        }.items()
    }
    | {"TraceFormat": FILE_FORMATS}
    | {pascal_case(f"work_{name}"): values for name, values in _OF_WORK.items()}
)
_OF_ANALYSES = {
    pascal_case(f"{name}_{parameter}"): values
    for name, question in QUESTIONS.items()
    for parameter, values in _choices(question.parameters).items()
    if values not in _SHARED.values()
}
ENUMS = _SHARED | _OF_ANALYSES
"""The values of each choice that several operations or schemas have, or that may be null."""

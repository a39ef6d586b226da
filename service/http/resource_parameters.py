"""Parameters of paths and pages that many routes share."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import WithJsonSchema

TraceId = Annotated[str, Path(description="the id of the trace")]
GroupId = Annotated[str, Path(description="the id of the group")]
AttachmentId = Annotated[str, Path(description="the id of the attachment")]
UploadId = Annotated[str, Path(description="the id of the upload")]
ImportId = Annotated[str, Path(description="the id of the import")]
DatasetName = Annotated[str, Path(description="the name of the dataset")]
RunName = Annotated[str, Path(description="the name of the run; a `/` in it may be written as it is, or as `%2F`")]
JobId = Annotated[
    int,
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+$"}),  # as the API writes it
    Path(description="the id of the job"),
]

ChosenCycle = Annotated[
    int | None, Query(ge=0, description="only the traces of this cycle, by its number; by default those of all cycles")
]
Limit = Annotated[int, Query(ge=1, le=500, description="maximum number of entries of the page")]
Cursor = Annotated[str | None, Query(description="`next` of the page before")]

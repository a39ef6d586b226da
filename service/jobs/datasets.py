"""The datasets of many traces that the server shows. A child reads them."""

import os
from collections.abc import AsyncGenerator, Mapping

from service.jobs.children.encoding import decode
from service.jobs.children.tasks.datasets import DatasetReport, DatasetTask, FleetQuestionTask
from service.jobs.question_child import QuestionChild
from service.trace.errors import BadFleetRequest, UnknownDataset


class Datasets:
    """The datasets that the server shows.

    Args:
        locations: their locations by name.
        child: the child that reads them.
    """

    def __init__(self, locations: Mapping[str, str], child: QuestionChild) -> None:
        self.locations = locations
        self._child = child

    def location(self, name: str) -> str:
        """Return the location of a dataset.

        Raises:
            UnknownDataset: there is none of this name.
        """
        if name not in self.locations:
            known = [*self.locations]
            shown = f"It shows {', '.join(known)}." if known else "TRACEDOCK_DATASETS names those to show."
            raise UnknownDataset(f"The server shows no dataset {name[:100]!r}. {shown}", known=known)
        return self.locations[name]

    async def report(self, name: str, *, failures: int = 0, after: str = "", client: str = "") -> DatasetReport:
        """Return the state of a dataset.

        Args:
            name: its name.
            failures: maximum number of failures to list.
            after: key of the failure before the first one to list.
            client: identity of the client; clients take turns.

        Raises:
            UnknownDataset: there is none of this name.
            ExportFailed: the child failed.
        """
        task = DatasetTask(self.location(name), failures, after)
        return decode(DatasetReport, await self._child.ask(task, client))

    async def answer(self, question: FleetQuestionTask, client: str) -> AsyncGenerator[bytes]:
        """Yield the answer to a question; closing the generator drops the question.

        Raises:
            UnknownFleetRun: the dataset has no such run.
            BadFleetRequest: the question can't be answered with these parameters.
            DatasetUnavailable: the dataset can't be read.
            DeadlineExceeded: the answer takes too long.
            ExportFailed: the child failed.
        """
        yield await self._child.ask(question, client)

    async def close(self) -> None:
        """End the child; unanswered questions fail."""
        await self._child.close()


def locations_of(text: str) -> dict[str, str]:
    """Return the locations of a comma-separated list, by the last parts of their paths.

    Raises:
        BadFleetRequest: a location has no name, or two have the same.
    """
    locations: dict[str, str] = {}
    for location in filter(None, map(str.strip, text.split(","))):
        scheme, separator, rest = location.partition("://")
        path = rest if separator else os.path.abspath(os.path.expanduser(location))  # noqa: PTH100, PTH111 - text is kept
        name = path.rstrip("/").rpartition("/")[2]
        if not name:
            raise BadFleetRequest(f"TRACEDOCK_DATASETS: {location} has no last part to name the dataset after.")
        if name in locations:
            raise BadFleetRequest(
                f"TRACEDOCK_DATASETS: {locations[name]} and {location} are both named {name}: rename a folder."
            )
        locations[name] = f"{scheme}://{rest}".rstrip("/") if separator else path
    return locations

"""The workers of the mode `here`: none but this process."""

from collections.abc import Generator, Mapping
from typing import Any

from service.fleet.workers.task import Task, outcome_of


class Here:
    """Runs tasks one after the other in this process, each with all processors."""

    count = 1

    def results(self, tasks: Mapping[str, Task]) -> Generator[tuple[str, Any], None, None]:
        """Run tasks; see `Workers`."""
        for name, task in tasks.items():
            yield name, outcome_of(task)

"""All questions about a fleet, by name."""

from service.analysis.catalogue import Catalogue
from service.fleet.questions.question import FleetQuestion
from service.trace.errors import UnknownQuestion

NAMES = ("slow_ranks", "step_outliers", "step_matrix", "kernel_outliers", "last_ranks", "drift")
"""In the order of lists. Each is also the name of its module in this folder."""

QUESTIONS: Catalogue[FleetQuestion] = Catalogue("service.fleet.questions", NAMES)


def question_of(name: str) -> FleetQuestion:
    """Return the question of a name.

    Raises:
        UnknownQuestion: no question has this name.
    """
    if name not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        raise UnknownQuestion(f"There is no question {name[:100]!r}. Known are {known}.", known=[*QUESTIONS])
    return QUESTIONS[name]

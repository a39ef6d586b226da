"""All questions about a fleet, by name."""

from service.fleet.questions import drift, kernel_outliers, last_ranks, slow_ranks, step_matrix, step_outliers
from service.fleet.questions.question import FleetQuestion
from service.trace.errors import UnknownQuestion

QUESTIONS: dict[str, FleetQuestion] = {
    module.QUESTION.name: module.QUESTION
    for module in (slow_ranks, step_outliers, step_matrix, kernel_outliers, last_ranks, drift)
}


def question_of(name: str) -> FleetQuestion:
    """Return the question of a name.

    Raises:
        UnknownQuestion: no question has this name.
    """
    if name not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        raise UnknownQuestion(f"There is no question {name[:100]!r}. Known are {known}.", known=[*QUESTIONS])
    return QUESTIONS[name]

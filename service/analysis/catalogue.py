"""The catalogue of all analyses, by name."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TypeVar

from service.analysis.names import NAMES
from service.analysis.question import Question
from service.trace.errors import UnknownAnalysis

Q = TypeVar("Q")


class Catalogue(Mapping[str, Q]):
    """Questions by name. The module of each is loaded at its first use: all of them would delay the server's start.

    Args:
        package: the package of the modules. Each has the name of its question, and the question as ``QUESTION``.
        names: the names, in the order of lists.
    """

    def __init__(self, package: str, names: Sequence[str]) -> None:
        self._package = package
        self._names = names

    def __getitem__(self, name: str) -> Q:
        """Return the question of a name; raises `KeyError` if there is none."""
        if name not in self._names:
            raise KeyError(name)
        question: Q = import_module(f"{self._package}.{name}").QUESTION
        return question

    def __iter__(self) -> Iterator[str]:
        """Return the names in the order of lists."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self._names)


QUESTIONS: Catalogue[Question] = Catalogue("service.analysis", NAMES)


def question_of(name: str) -> Question:
    """Return the question of a name.

    Raises:
        UnknownAnalysis: no question has this name.
    """
    if name not in QUESTIONS:
        raise UnknownAnalysis(f"There is no analysis {name!r}.", known=[*QUESTIONS])
    return QUESTIONS[name]

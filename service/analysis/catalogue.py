"""The catalogue of all analyses, by name."""

from importlib import import_module

from service.analysis.names import NAMES
from service.analysis.question import Question

QUESTIONS: dict[str, Question] = {name: import_module(f"service.analysis.{name}").QUESTION for name in NAMES}

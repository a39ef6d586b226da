"""Compiles machine code ahead of its first use.

Run it as ``python -m service.jobs``.
"""

from service.analysis.catalogue import QUESTIONS
from service.jobs.machine_code import load_machine_code


def main() -> None:
    """Compile the code of ingests and of the answers to all questions."""
    load_machine_code(QUESTIONS)


if __name__ == "__main__":
    main()

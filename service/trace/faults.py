"""The faults of values that a model refuses, as text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def faults_of(error: "ValidationError", whole: str = "") -> str:
    """Return each fault with the path of its value, as in ``steps.0: Input should be a valid integer``.

    Args:
        error: the refusal by the model.
        whole: what to call the values as a whole, where a fault is theirs.
    """
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg']}" for fault in error.errors())

"""Properties of GPUs, from a trace's document."""

from collections.abc import Mapping
from typing import Any

from service.analysis.facts.scope import Scope
from service.trace.process_groups import member_of_rank


def properties_of(scope: Scope) -> list[Mapping[str, Any]]:
    """Return the properties of the GPUs that a rank could use; in a merged trace, those that the rank recorded."""
    listed = member_of_rank(scope.envelope, scope.rank, "deviceProperties")
    return [properties for properties in listed if isinstance(properties, Mapping)] if isinstance(listed, list) else []


def capability_of(properties: Mapping[str, Any]) -> str | None:
    """Return a GPU's compute capability, as `9.0`."""
    major, minor = (whole_number(properties.get(key)) for key in ("computeMajor", "computeMinor"))
    return None if major is None or minor is None else f"{major}.{minor}"


def whole_number(value: object) -> int | None:
    """Convert a JSON number to an integer; None for other values and for numbers beyond exact doubles."""
    return int(value) if isinstance(value, int | float) and abs(value) < 1 << 53 else None

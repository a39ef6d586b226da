"""What a trace's document tells of its GPUs, beside their events."""

from collections.abc import Mapping
from typing import Any

from service.analysis.facts.scope import Scope
from service.trace.process_groups import member_of_rank


def properties_of(scope: Scope) -> list[Mapping[str, Any]]:
    """The properties of the GPUs that a rank could use; of a merged trace, as its rank has told them."""
    listed = member_of_rank(scope.envelope, scope.rank, "deviceProperties")
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def capability_of(properties: Mapping[str, Any]) -> str | None:
    """A GPU's compute capability, as `9.0`."""
    major, minor = (whole_number(properties.get(key)) for key in ("computeMajor", "computeMinor"))
    return None if major is None or minor is None else f"{major}.{minor}"


def whole_number(value: object) -> int | None:
    """A number of JSON as an integer, if it is one of a size that is sensible."""
    return int(value) if isinstance(value, int | float) and abs(value) < 1 << 53 else None

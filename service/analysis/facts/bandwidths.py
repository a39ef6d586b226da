"""Sizes and bandwidths of collectives, by the definitions of nccl-tests.

See https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md. The size of an all-gather is its whole output,
and that of a reduce-scatter is its whole input.
"""

from functools import lru_cache

ELEMENT_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char", "unsigned char", "signed char", "bool"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short", "c10::BFloat16", "c10::Half", "short int", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "float", "int", "UInt32", "unsigned int"), 4),
    **dict.fromkeys(("Double", "Long", "double", "long int", "ComplexFloat", "c10::complex<float>", "UInt64"), 8),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}
"""Bytes of an element, by the name of its type."""

KINDS = (
    *("allreduce", "reducescatter", "allgather", "alltoallv", "alltoall", "broadcast", "reduce", "gather", "scatter"),
    *("sendrecv", "send", "recv", "barrier"),
)
"""Kinds of collectives; a collective is of the first kind that its name contains."""

SYNCHRONIZING = frozenset({"allreduce", "reducescatter", "allgather", "alltoall"})
"""Kinds in which each rank waits for all others, as TraceLens defines them."""

POINT_TO_POINT = frozenset({"send", "recv", "sendrecv"})
"""Kinds in which two ranks of a group take part."""

_GATHERED = frozenset({"allgather", "gather"})
"""Kinds whose size is that of their whole output."""
_SCALES = {
    "allreduce": 2,
    **dict.fromkeys(("reducescatter", "allgather", "alltoall", "alltoallv", "gather", "scatter"), 1),
}
"""Factor of each kind: with n ranks, bus bandwidth = factor * (n - 1) / n * algorithm bandwidth, as in nccl-tests."""
_UNSCALED = frozenset({"broadcast", "reduce", *POINT_TO_POINT})
"""Kinds whose bus bandwidth is their algorithm bandwidth."""
_BYTES_MAX = 1 << 62


@lru_cache(maxsize=1024)
def kind_of(collective: str | None) -> str:
    """Return the kind of a collective by its name: `allreduce` for `nccl:all_reduce`.

    A name that contains no known kind is returned in lower case and without punctuation.
    """
    plain = "".join(filter(str.isalnum, (collective or "").lower()))
    return next((kind for kind in KINDS if kind in plain), plain)


def bytes_of(elements: int | None, dtype: str | None) -> int | None:
    """Return the size of elements in bytes; None if their count or type is unknown, or if the size is too large."""
    is_float8 = (dtype or "").removeprefix("c10::").startswith("Float8")
    width = ELEMENT_BYTES.get(dtype or "", 1 if is_float8 else None)
    if elements is None or width is None:
        return None
    size = elements * width
    return size if size <= _BYTES_MAX else None


def size_of(
    collective: str | None,
    dtype: str | None,
    in_elements: int | None,
    out_elements: int | None,
    group_size: int | None,
    *,
    input_bytes: int | None = None,
) -> int | None:
    """Return the size of a collective in bytes; None if it is unknown or too large.

    Args:
        collective: name of the collective.
        dtype: type of its elements.
        in_elements: number of elements that a rank sends.
        out_elements: number of elements that a rank receives.
        group_size: number of ranks in the group.
        input_bytes: size of a rank's input, if it is known directly, as for tensors of several types.
    """
    sent = bytes_of(in_elements, dtype) if input_bytes is None else input_bytes
    if kind_of(collective) not in _GATHERED:
        return sent
    if out_elements is not None:
        return bytes_of(out_elements, dtype)
    if sent is None or not group_size:
        return None
    gathered = sent * group_size
    return gathered if gathered <= _BYTES_MAX else None


def bandwidths(
    collective: str | None, group_size: int | None, size: int | None, duration: int | None
) -> tuple[float | None, float | None]:
    """Return the algorithm bandwidth and the bus bandwidth in bytes per nanosecond (GB/s); None where unknown.

    Args:
        collective: name of the collective.
        group_size: number of ranks in the group.
        size: size of the collective in bytes.
        duration: duration in ns.
    """
    if not size or not duration:
        return None, None
    algorithm_bandwidth = size / duration
    kind = kind_of(collective)
    if kind in _UNSCALED:
        return algorithm_bandwidth, algorithm_bandwidth
    scale = _SCALES.get(kind)
    if not scale or not group_size:
        return algorithm_bandwidth, None
    return algorithm_bandwidth, algorithm_bandwidth * scale * (group_size - 1) / group_size

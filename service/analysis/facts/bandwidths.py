"""Sizes and bandwidths of collectives, by the definitions of nccl-tests.

See https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md. The size of an all-gather is its whole output,
that of a reduce-scatter its whole input.
"""

from functools import lru_cache

ELEMENT_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char", "unsigned char", "signed char", "bool"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short", "c10::BFloat16", "c10::Half", "short int", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "float", "int", "UInt32", "unsigned int"), 4),
    **dict.fromkeys(("Double", "Long", "double", "long int", "ComplexFloat", "c10::complex<float>", "UInt64"), 8),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}
"""The length of an element, by its type's name."""

KINDS = (
    *("allreduce", "reducescatter", "allgather", "alltoallv", "alltoall", "broadcast", "reduce", "gather", "scatter"),
    *("sendrecv", "send", "recv", "barrier"),
)
"""Kinds of collectives; the first that stands in a name is its kind."""

SYNCHRONIZING = frozenset({"allreduce", "reducescatter", "allgather", "alltoall"})
"""Kinds of which each rank waits for all others, as TraceLens has them."""

POINT_TO_POINT = frozenset({"send", "recv", "sendrecv"})
"""Kinds in which two ranks of a group take part."""

_GATHERED = frozenset({"allgather", "gather"})
_SCALES = {"allreduce": 2, **dict.fromkeys(("reducescatter", "allgather", "alltoall", "alltoallv", "gather"), 1)}
_SCALES["scatter"] = 1
_UNSCALED = frozenset({"broadcast", "reduce", *POINT_TO_POINT})
_BYTES_MAX = 1 << 62


@lru_cache(maxsize=1024)
def kind_of(collective: str | None) -> str:
    """Kind of a collective by its name: `allreduce` of `nccl:all_reduce`; other names without punctuation."""
    plain = "".join(filter(str.isalnum, (collective or "").lower()))
    return next((kind for kind in KINDS if kind in plain), plain)


def bytes_of(elements: int | None, dtype: str | None) -> int | None:
    """Size of so many elements; None where the type is unknown."""
    length = ELEMENT_BYTES.get(dtype or "", 1 if (dtype or "").removeprefix("c10::").startswith("Float8") else None)
    return None if elements is None or length is None or elements * length > _BYTES_MAX else elements * length


def size_of(
    collective: str | None,
    dtype: str | None,
    in_elements: int | None,
    out_elements: int | None,
    group_size: int | None,
    *,
    input_bytes: int | None = None,
) -> int | None:
    """Size of a collective in bytes.

    Args:
        collective: its name.
        dtype: type of its elements.
        in_elements: elements that a rank gives.
        out_elements: elements that a rank gets.
        group_size: number of its ranks.
        input_bytes: size of what a rank gives, where it is known otherwise, as of tensors of several types.
    """
    given = bytes_of(in_elements, dtype) if input_bytes is None else input_bytes
    if kind_of(collective) not in _GATHERED:
        return given
    if out_elements is not None:
        return bytes_of(out_elements, dtype)
    return given * group_size if given is not None and group_size and given * group_size <= _BYTES_MAX else None


def bandwidths(
    collective: str | None, group_size: int | None, size: int | None, duration: int | None
) -> tuple[float | None, float | None]:
    """Algorithm and bus bandwidth in bytes per nanosecond, which are GB/s."""
    if not size or not duration:
        return None, None
    rate = size / duration
    kind = kind_of(collective)
    if kind in _UNSCALED:
        return rate, rate
    scale = _SCALES.get(kind)
    return rate, rate * scale * (group_size - 1) / group_size if scale and group_size else None

"""The schema of a trace's events."""

import pyarrow as pa

_WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("ph", _WORDS),
        pa.field("cat", _WORDS),
        pa.field("name", _WORDS),
        pa.field("pid", pa.int64()),
        pa.field("pid_text", _WORDS),
        pa.field("tid", pa.int64()),
        pa.field("tid_text", _WORDS),
        pa.field("ts_ns", pa.int64()),
        pa.field("ts_digits", pa.int8()),
        pa.field("dur_ns", pa.int64()),
        pa.field("dur_digits", pa.int8()),
        pa.field("id", pa.int64()),
        pa.field("id_text", _WORDS),
        pa.field("device", pa.int64()),
        pa.field("stream", pa.int64()),
        pa.field("correlation", pa.int64()),
        pa.field("external_id", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("args", pa.string()),
        pa.field("rest", pa.string()),
        pa.field("verbatim", pa.bool_(), nullable=False),
    ]
)
"""The columns of a trace's events.

A ``verbatim`` event is exported as its ``rest`` alone. Any other event is exported as an object that consists of its
columns that are not null, its ``args`` and the members of its ``rest``. ``pid_text``, ``tid_text`` and ``id_text`` hold
the JSON text of a value that is not an integer of at most 18 digits. ``ts_digits`` and ``dur_digits`` are the numbers
of decimals of the time in the document, which is in µs.
"""

UNTIMED_LAST = (1 << 63) - 1
"""Time of events without one in sorts, in which they come last."""

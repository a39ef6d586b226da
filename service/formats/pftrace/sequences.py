"""The interned data of the sequences of packets: what the numbers in their events stand for."""

from collections.abc import Callable, Iterable
from typing import Any

from service.formats.pftrace.messages import STATE_CLEARED
from service.trace.errors import NotATrace

SIZE_MAX = 1 << 30
"""Largest size in bytes of all interned texts and descriptions of tracks."""

_ENTRY_SIZE = 200  # bytes that an entry of a table takes, at least


class Budget:
    """The memory that a trace may still take for texts and tracks that later packets refer to."""

    def __init__(self) -> None:
        self._left = SIZE_MAX

    def take(self, size: int) -> None:
        """Take memory for an entry with so many bytes of text; raises `NotATrace` if none is left."""
        self._left -= size + _ENTRY_SIZE
        if self._left < 0:
            raise NotATrace(f"The trace has more than {SIZE_MAX >> 20} MiB of interned texts and tracks.")


class Sequence:
    """The state of a sequence of packets.

    Args:
        number: of the sequence, in the order of the file.
        decode: returns a text.
        budget: the memory that interned data may take.

    Attributes:
        names, categories: of track events, by number.
        stages: names of GPU stages and of hardware queues.
        kernels: names of kernels.
        launch_arguments: names of arguments of launches.
        counters: names of GPU counters, with the GPU, by number of the description and of the counter.
        argument_names, argument_texts: of the annotations of track events.
        clock_id: clock of packets that name none; 0 for that of the trace.
        track_uuid: track of events that name none; 0 for none.
        arguments: parsed annotations, by their bytes.
    """

    def __init__(self, number: int, decode: Callable[[bytes], str], budget: Budget) -> None:
        self.number = number
        self._decode = decode
        self._budget = budget
        self._clear()

    def _clear(self) -> None:
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.stages: dict[int, str] = {}
        self.kernels: dict[int, str] = {}
        self.launch_arguments: dict[int, str] = {}
        self.counters: dict[tuple[int, int], tuple[int, str]] = {}
        self.argument_names: dict[int, str] = {}
        self.argument_texts: dict[int, str] = {}
        self.arguments: dict[bytes, tuple[str, Any]] = {}
        self.clock_id = 0
        self.track_uuid = 0

    def update(self, packet: Any) -> None:
        """Apply the interned data and the defaults of a packet."""
        if packet.sequence_flags & STATE_CLEARED or packet.incremental_state_cleared:
            self._clear()
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            self.clock_id = defaults.timestamp_clock_id
            self.track_uuid = defaults.track_event_defaults.track_uuid
        if packet.HasField("interned_data"):
            self._intern(packet.interned_data)

    def _intern(self, data: Any) -> None:
        self.arguments.clear()
        self._add(self.names, ((entry.iid, entry.name) for entry in data.event_names))
        self._add(self.categories, ((entry.iid, entry.name) for entry in data.event_categories))
        self._add(self.argument_names, ((entry.iid, entry.name) for entry in data.debug_annotation_names))
        self._add(self.argument_texts, ((entry.iid, entry.str) for entry in data.debug_annotation_string_values))
        self._add(self.stages, ((entry.iid, entry.name) for entry in data.gpu_specifications))
        self._add(self.kernels, ((entry.iid, entry.demangled_name or entry.name) for entry in data.compute_kernels))
        self._add(self.launch_arguments, ((entry.iid, entry.name) for entry in data.compute_arg_names))
        for described in data.gpu_counter_descriptors:
            for spec in described.counter_descriptor.specs:
                self._budget.take(len(spec.name))
                self.counters[described.iid, spec.counter_id] = described.gpu_id, self._decode(spec.name)

    def _add(self, table: dict[int, str], entries: Iterable[tuple[int, bytes]]) -> None:
        for number, text in entries:
            self._budget.take(len(text))
            table[number] = self._decode(text)

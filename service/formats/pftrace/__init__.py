"""The reader of Perfetto's protobuf traces (`.pftrace`); `docs/importing.md` has the mapping of packets to events."""

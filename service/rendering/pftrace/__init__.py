"""Writing of a trace as Perfetto's protobuf; `docs/importing.md` says which packets each event becomes."""

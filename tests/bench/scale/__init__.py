"""Growth of an ingest: a simulation whose parameters are measured; see `docs/scale.md`."""

"""Input formats of traces: one folder for each, listed in `service.formats.registry`."""

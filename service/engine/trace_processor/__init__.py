"""Perfetto's trace_processor as the engine: its installation, sandbox and process, and its protocol over a pipe."""

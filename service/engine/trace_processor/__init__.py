"""Perfetto's trace_processor as the engine: installed, started in a sandbox, spoken to over its pipe."""

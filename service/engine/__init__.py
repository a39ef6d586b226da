"""SQL engines for traces: their start, load, queries and stop. All clients of a trace share one engine."""

"""Built-in analyses of traces, one per module: each computes tables from the columns, without an engine."""

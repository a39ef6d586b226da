"""The managed trace_processor: found and verified, started on a trace, spoken to over its pipe, shared, stopped."""

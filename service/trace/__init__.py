"""The domain's terms (trace, event, track, stream, rank, step) and errors."""

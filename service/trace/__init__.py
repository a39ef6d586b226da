"""The domain's nouns: trace, event, track, stream, rank, step, and the errors that speak of them."""

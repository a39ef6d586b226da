"""Work that outlives a request: a durable queue, worker processes, progress, recovery."""

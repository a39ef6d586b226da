"""Questions over the facts of thousands of ranks, which read no events."""

"""``make bench``: the cost of each step on one trace, next to the lower limits for the same file, in one run."""

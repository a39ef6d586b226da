"""Benchmark of each step on one trace, next to lower bounds for the same file; run by ``make bench``."""

"""Traces made of traces: what a selection keeps, cut out, split into pieces, or merged from ranks."""

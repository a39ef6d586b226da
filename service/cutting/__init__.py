"""Traces derived from traces: cuts, splits, merges of ranks, and overlays."""

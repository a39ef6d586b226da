"""Rendering of a trace as a document that an engine loads without loss: distinct ids, safe values, nested slices."""

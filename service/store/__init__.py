"""Persistent state: the data folder, originals, columns, and the catalog."""

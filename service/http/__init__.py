"""The wire: one file a resource, and the one table of errors."""

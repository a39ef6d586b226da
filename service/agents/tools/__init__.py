"""The tools, one in each module."""

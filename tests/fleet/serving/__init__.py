"""Tests of the server on a cluster."""

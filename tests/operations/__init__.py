"""Tests of `service.operations`."""

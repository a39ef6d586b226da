"""Tests of memory timelines."""

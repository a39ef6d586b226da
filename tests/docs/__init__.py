"""Tests of the documents: their commands are run, and their lists are compared with the code."""

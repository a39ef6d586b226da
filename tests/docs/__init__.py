"""Tests of the documents: what they show is run, and what they list is what there is."""

"""Folders and buckets, behind one interface."""

"""Bytes to events and back: codec, document, census. Every step is bounded in memory, whatever the file's size."""

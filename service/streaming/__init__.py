"""Decompression and JSON text: codecs, repair, and the fast scan to columns. All steps run in bounded memory."""

"""Tracedock: receives PyTorch profiler traces over HTTP, answers SQL on them and opens them in Perfetto."""

__version__ = "0.1.0"

"""Client of a Tracedock server: uploads PyTorch profiler traces, and queries and analyses them."""

__version__ = "0.1.0"

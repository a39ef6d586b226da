"""The synchronous client. All modules but `runtime` are generated from `tracedock.asynchronous`."""

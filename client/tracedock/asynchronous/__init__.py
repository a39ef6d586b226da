"""The client, written for asyncio; `python -m tests.client` generates `tracedock.synchronous` from it."""

"""ASGI middlewares: metrics, CORS, access, idempotency and methods."""

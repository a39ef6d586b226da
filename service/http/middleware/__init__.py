"""ASGI middlewares, from the outermost: routing, metrics, CORS, access, idempotency and methods."""

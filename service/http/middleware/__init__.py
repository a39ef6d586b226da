"""ASGI middlewares, from the outermost: routing, metrics, compression, CORS, access, idempotency and methods."""

"""The OpenAPI document: FastAPI derives it from the routes, and this package completes it."""

"""The HTTP API: routes, middlewares, the server's protocols, and the JSON objects of responses."""

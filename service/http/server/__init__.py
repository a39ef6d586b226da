"""Connections to clients: bounds on their number, speed and size, and the sockets that the server listens on."""

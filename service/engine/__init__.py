"""SQL engines on traces: started, loaded, queried, shared by all clients and stopped."""

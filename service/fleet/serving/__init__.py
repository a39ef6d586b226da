"""The server's tasks on a Dask cluster: the child process that holds the connection, and what workers run."""

"""Child processes of the server: the tasks that they run, their protocol, and the pool that starts them."""

"""Workers: the processes that do the work on many traces, in this process, on this machine or on a cluster."""

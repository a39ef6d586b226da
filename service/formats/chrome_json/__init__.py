"""Chrome's JSON trace format, as `torch.profiler` and other tools write it. Damaged files are read, too."""

"""Chrome's JSON trace format, as `torch.profiler` and others write it, damaged or not."""

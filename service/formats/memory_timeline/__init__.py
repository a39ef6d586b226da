"""Memory timelines, which the deprecated `export_memory_timeline` of PyTorch's profiler writes."""

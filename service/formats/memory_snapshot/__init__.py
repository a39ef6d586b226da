"""Memory snapshots: pickles that `torch.cuda.memory._dump_snapshot` writes."""

"""``make bench``: what each step costs on one trace, beside the same file's bare limits, in one run."""

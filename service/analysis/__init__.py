"""Questions that are often asked of a trace: one a file, answered with tables from its columns, and with no engine."""

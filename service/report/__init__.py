"""Reports: what the built-in analyses say about a trace or a run, in one HTML file or as Markdown."""

"""Fast reader of event text: compiled from Python by numba, as strict as a JSON parser, exact to the character.

`machine` reads up to sixteen bytes at a time, `grammar` is the grammar of JSON, `events` scans the members of events,
`columns` builds Arrow columns from them, and `reader` applies all these to one frame.
"""

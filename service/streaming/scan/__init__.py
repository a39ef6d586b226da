"""Fast reader of event text: compiled from Python by numba, as strict as a JSON parser, exact to the character.

`machine` reads bytes at the processor's width, `grammar` is JSON, `events` scans the members of events, `columns`
builds Arrow columns of them, and `reader` runs these on one frame.
"""

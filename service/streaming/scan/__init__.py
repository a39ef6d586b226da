"""The fast reader of event text: compiled from Python by numba, strict as a JSON parser, exact to the character.

`machine` reads bytes at the processor's own width, `grammar` is JSON, `events` finds where each event's members stand,
`columns` makes arrow columns of them, and `reader` runs the four on one frame.
"""

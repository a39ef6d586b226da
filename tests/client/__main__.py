"""Generate the synchronous client from the asynchronous one: `python -m tests.client`."""

from tests.client.generated import ASYNCHRONOUS, MODULES, SYNCHRONOUS, synchronous

for module in MODULES:
    (SYNCHRONOUS / module).write_text(synchronous((ASYNCHRONOUS / module).read_text()))

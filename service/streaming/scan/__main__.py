"""Compiles the reader ahead of its first use: ``python -m service.streaming.scan``."""

import pyarrow as pa

from service.streaming.scan.events import ELEMENT_OR_CLOSE
from service.streaming.scan.nesting import Nesting
from service.streaming.scan.reader import Reader

_EVENT = b'{"ph":"X","name":"compile","pid":1,"tid":"one","ts":1.5,"dur":1,"args":{"x":[1]},"more":{}}]'


def main() -> None:
    """Read one event with everything that is compiled."""
    events = Reader().read(_EVENT, 0, ELEMENT_OR_CLOSE, last=False)
    Nesting().add(pa.Table.from_batches(events.batches))


if __name__ == "__main__":
    main()

"""Iteration ahead of the consumer."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item], name: str) -> Iterator[Item]:
    """Yield items; a thread produces the next one while the caller works on one.

    Args:
        items: the items, which raise their errors here.
        name: name of the thread.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, name) as thread:
        following = thread.submit(_next, iterator)
        while item := following.result():
            following = thread.submit(_next, iterator)
            yield item[0]


def _next(iterator: Iterator[Item]) -> tuple[Item] | None:
    for item in iterator:
        return (item,)
    return None

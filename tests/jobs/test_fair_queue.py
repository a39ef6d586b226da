"""No client occupies all workers of a queue; a client's items are taken by turn, then by number."""

import threading

from service.jobs.fair_queue import Entry, FairQueue


def test_items_are_taken_by_turn_then_by_number() -> None:
    queue: FairQueue[str] = FairQueue(per_client=9)
    for number, turn in enumerate([2, 1, 1]):
        queue.put(Entry(turn, number, "a", f"{turn}-{number}"))
    items = []
    for _ in range(3):
        entry = queue.take()
        queue.done(entry)
        items.append(entry.item)
    assert items == ["1-1", "1-2", "2-0"]


def test_client_with_fewer_items_in_progress_goes_first() -> None:
    queue: FairQueue[str] = FairQueue(per_client=2)
    for number, client in enumerate("aaab"):
        queue.put(Entry(0, number, client, client))
    assert [queue.take().item for _ in range(3)] == ["a", "b", "a"]


def test_client_waits_while_its_maximum_of_items_is_in_progress() -> None:
    queue: FairQueue[int] = FairQueue(per_client=1)
    for number in range(2):
        queue.put(Entry(0, number, "a", number))
    first = queue.take()
    items: list[int] = []
    thread = threading.Thread(target=lambda: items.append(queue.take().item), daemon=True)
    thread.start()
    thread.join(0.2)
    assert items == []
    queue.done(first)
    thread.join(10)
    assert items == [1]


def test_of_each_client_one_large_item_is_in_work_at_a_time() -> None:
    queue: FairQueue[str] = FairQueue(per_client=9)
    for number, (client, item) in enumerate([("a", "large"), ("a", "larger"), ("a", "small"), ("b", "large")]):
        queue.put(Entry(0, number, client, f"{client} {item}", is_large="large" in item))
    first = queue.take()
    assert [first.item, queue.take().item, queue.take().item] == ["a large", "b large", "a small"]
    queue.done(first)
    assert queue.take().item == "a larger"

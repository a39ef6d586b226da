"""No client occupies all workers of a queue, and items come in order."""

import threading

from service.jobs.fair_queue import Entry, FairQueue


def test_fair_queue_gives_items_by_turn_and_number() -> None:
    waiting: FairQueue[str] = FairQueue(per_client=9)
    for number, turn in enumerate([2, 1, 1]):
        waiting.put(Entry(turn, number, "a", f"{turn}-{number}"))
    taken = []
    for _ in range(3):
        entry = waiting.take()
        waiting.done(entry)
        taken.append(entry.item)
    assert taken == ["1-1", "1-2", "2-0"]


def test_clients_with_less_in_work_go_first() -> None:
    waiting: FairQueue[str] = FairQueue(per_client=2)
    for number, client in enumerate("aaab"):
        waiting.put(Entry(0, number, client, client))
    assert [waiting.take().item for _ in range(3)] == ["a", "b", "a"]


def test_client_waits_while_it_has_its_bound_of_items_in_work() -> None:
    waiting: FairQueue[int] = FairQueue(per_client=1)
    for number in range(2):
        waiting.put(Entry(0, number, "a", number))
    first = waiting.take()
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(waiting.take().item), daemon=True)
    thread.start()
    thread.join(0.2)
    assert taken == []
    waiting.done(first)
    thread.join(10)
    assert taken == [1]

"""A simulation of `tracedock fleet ingest`, event by event.

A worker reads a file while it parses it, computes facts and answers, and uploads the result. One process, the head,
runs the scheduler and the command that sends tasks and merges facts. Files move through a store that all share.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

from distributed.scheduler import heartbeat_interval

from tests.bench.scale.parameters import GB, Assumptions, Costs, Work
from tests.bench.scale.transfers import Transfers

DEATHS_MAX = 3
"""Number of workers that die at a task before it is put aside, and runs alone in the end."""
ATTEMPTS_MAX = 100
"""Mean number of attempts at a rank from which no end is in sight."""
HEARTBEATS_MAX = 0.99
"""Largest share of the head's time that heartbeats may take; beyond it, no task would ever end."""


@dataclass
class Outcome:
    """Result of a simulated ingest.

    Attributes:
        wall_s: seconds until the last facts are merged.
        done: number of times that each rank was done.
        attempts: number of attempts at tasks.
        parts: number of merged parts.
        jobs: number of jobs of workers.
        busy_s: seconds in which workers worked, also at attempts that were lost.
        lost_s: seconds of attempts that were lost.
        head_s: seconds in which the head was busy with tasks and heartbeats.
        merging_s: seconds of merging facts.
    """

    wall_s: float = 0.0
    done: list[int] = field(default_factory=list)
    attempts: int = 0
    parts: int = 0
    jobs: int = 0
    busy_s: float = 0.0
    lost_s: float = 0.0
    head_s: float = 0.0
    merging_s: float = 0.0

    @property
    def ranks(self) -> int:
        """Number of ranks that were done."""
        return sum(self.done)


@dataclass(eq=False)
class _Worker:
    """A worker.

    Attributes:
        runs: whether its job runs.
        attempt: what it works at; None if it is idle.
    """

    runs: bool = False
    attempt: "_Attempt | None" = None


@dataclass(eq=False)
class _Attempt:
    """An attempt at a task.

    Attributes:
        number: its number.
        rank: the rank that it reads.
        worker: the worker.
        since: when it began.
        phases: the phases that are left. A phase transfers so many GB, and works for so many seconds meanwhile.
        left: number of the things of this phase that have not ended: the transfer, the work, or both.
    """

    number: int
    rank: int
    worker: _Worker
    since: float
    phases: Iterator[tuple[float, float]]
    left: int = 0


def simulate(work: Work, costs: Costs, assumptions: Assumptions) -> Outcome:
    """Simulate an ingest.

    Raises:
        ValueError: the ingest would never end, because a task takes longer than a worker's job, or because heartbeats
            leave no time for tasks.
    """
    return _Simulation(work, costs, assumptions).run()


class _Simulation:
    def __init__(self, work: Work, costs: Costs, assumptions: Assumptions) -> None:
        self._work, self._costs, self._assumptions = work, costs, assumptions
        self._random = random.Random(work.seed)
        self._factors = [self._random.lognormvariate(-(work.spread**2) / 2, work.spread) for _ in range(work.ranks)]
        self._heartbeat_share = work.workers / heartbeat_interval(work.workers) * costs.heartbeat_s
        self._require_possible()
        self._numbers = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._transfers = Transfers(assumptions.store_gb_s * GB, assumptions.worker_gb_s * GB)
        self._transferring: dict[int, _Attempt] = {}
        self._idle: dict[_Worker, None] = {}
        ranks = range(work.ranks)
        self._sent, self._unsent = deque(ranks[: work.flight]), deque(ranks[work.flight :])
        self._running = 0
        self._deaths = [0] * work.ranks
        self._suspects: deque[int] = deque()
        self._head_free = self._client_free = 0.0
        self._handled = self._merged = 0
        self._outcome = Outcome(done=[0] * work.ranks)

    def _require_possible(self) -> None:
        if self._heartbeat_share > HEARTBEATS_MAX:
            raise ValueError(
                f"Heartbeats of {self._work.workers} workers take {self._heartbeat_share:.0%} of the head's time."
            )
        slowest = max(self._factors, default=0) * self._costs.seconds(self._work.gigabytes)
        if slowest >= self._assumptions.lifetime_s:
            raise ValueError(f"A task of {slowest:.0f} s never ends in a job of {self._assumptions.lifetime_s:.0f} s.")

    def run(self) -> Outcome:
        """Run until all ranks are done and their facts are merged."""
        for worker in [_Worker() for _ in range(self._work.workers)]:
            self._at(self._random.uniform(0, self._assumptions.start_s), partial(self._begin_job, worker))
        while self._handled < self._work.ranks:
            self._step()
            if (attempts := self._outcome.attempts) > ATTEMPTS_MAX * self._work.ranks:
                raise ValueError(
                    f"{self._handled} of {self._work.ranks} ranks are done after {attempts} attempts: jobs are too"
                    " short, or workers die too often."
                )
        outcome = self._outcome
        outcome.wall_s = max(self._client_free, self._head_free)
        outcome.head_s += self._heartbeat_share * outcome.wall_s
        return outcome

    def _step(self) -> None:
        """Do what happens next."""
        if self._transfers.next_end <= (self._events[0][0] if self._events else inf):
            now = self._transfers.next_end
            self._end_of_phase(self._transferring.pop(self._transfers.end_next()), now)
        else:
            now, _, act = heapq.heappop(self._events)
            act(now)

    def _at(self, time: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), act))

    # -- jobs of workers ----------------------------------------------------------------------------------------------

    def _begin_job(self, worker: _Worker, now: float) -> None:
        """Begin a job. It ends after its lifetime, or before that if its worker dies."""
        worker.runs = True
        self._outcome.jobs += 1
        rate = self._assumptions.deaths_per_hour / 3600
        death = self._random.expovariate(rate) if rate else inf
        lifetime = self._assumptions.lifetime_s
        if min(death, lifetime) < inf:
            self._at(now + min(death, lifetime), partial(self._end_job, worker, is_death=death < lifetime))
        self._offer(worker, now)

    def _end_job(self, worker: _Worker, now: float, *, is_death: bool) -> None:
        """End a job. The scheduler gives its task to another worker; one that has killed several waits."""
        worker.runs = False
        self._idle.pop(worker, None)
        if (attempt := worker.attempt) is not None:
            self._lose(attempt, now, is_death=is_death)
        self._at(now + self._assumptions.start_s, partial(self._begin_job, worker))
        self._assign(now)

    def _lose(self, attempt: _Attempt, now: float, *, is_death: bool) -> None:
        if self._transferring.pop(attempt.number, None):
            self._transfers.cancel(attempt.number, now)
        self._leave(attempt, now)
        self._outcome.lost_s += now - attempt.since
        self._deaths[attempt.rank] += is_death
        if is_death and self._deaths[attempt.rank] % DEATHS_MAX == 0:
            self._suspects.append(attempt.rank)
        else:
            self._sent.appendleft(attempt.rank)

    def _leave(self, attempt: _Attempt, now: float) -> None:
        """Count an attempt that is over, and free its worker."""
        attempt.worker.attempt = None
        self._running -= 1
        self._outcome.busy_s += now - attempt.since

    # -- attempts at tasks --------------------------------------------------------------------------------------------

    def _offer(self, worker: _Worker, now: float) -> None:
        """Offer an idle worker to the scheduler."""
        if worker.runs and worker.attempt is None:
            self._idle[worker] = None
            self._assign(now)

    def _assign(self, now: float) -> None:
        """Assign tasks to idle workers. Suspects come last, one at a time."""
        if self._suspects and not (self._sent or self._unsent or self._running):
            self._sent.append(self._suspects.popleft())
        while self._sent and self._idle:
            worker = next(iter(self._idle))
            del self._idle[worker]
            self._start(worker, self._sent.popleft(), now)

    def _start(self, worker: _Worker, rank: int, now: float) -> None:
        costs, size, factor = self._costs, self._work.gigabytes, self._factors[rank]
        phases = (
            (size * costs.packed_ratio, factor * costs.reading.at(size)),
            (0.0, factor * (costs.facts.at(size) + costs.answers.at(size))),
            (size * costs.columns_ratio, 0.0),
        )
        worker.attempt = _Attempt(next(self._numbers), rank, worker, now, iter(phases))
        self._running += 1
        self._outcome.attempts += 1
        self._begin_phase(worker.attempt, now)

    def _begin_phase(self, attempt: _Attempt, now: float) -> None:
        """Begin the next phase, or end the attempt."""
        gigabytes, seconds = next(attempt.phases, (0.0, 0.0))
        attempt.left = (gigabytes > 0) + (seconds > 0)
        if not attempt.left:
            self._end(attempt, now)
        if gigabytes:
            self._transferring[attempt.number] = attempt
            self._transfers.start(attempt.number, gigabytes * GB, now)
        if seconds:
            self._at(now + seconds, partial(self._end_of_phase, attempt))

    def _end_of_phase(self, attempt: _Attempt, now: float) -> None:
        """End the transfer or the work of a phase, unless the attempt was lost."""
        if attempt.worker.attempt is attempt:
            attempt.left -= 1
            if not attempt.left:
                self._begin_phase(attempt, now)

    def _end(self, attempt: _Attempt, now: float) -> None:
        """End an attempt: the head learns of it after those before, and then knows the worker as idle."""
        self._leave(attempt, now)
        outcome, costs = self._outcome, self._costs
        outcome.done[attempt.rank] += 1
        service = costs.head_s / (1 - self._heartbeat_share)
        self._head_free = max(self._head_free, now) + service
        outcome.head_s += costs.head_s
        gap = max(0.0, costs.task_gap_s - costs.head_s)
        self._at(self._head_free + gap, partial(self._offer, attempt.worker))
        self._at(self._head_free, self._handle)

    def _handle(self, now: float) -> None:
        """Let the command handle a result: it merges facts once there are enough, and sends a further task."""
        self._handled += 1
        self._client_free = max(self._client_free, now)
        is_last = self._handled == self._work.ranks
        if is_last or not self._handled % self._work.part:
            traces = self._handled - self._merged
            self._merged = self._handled
            self._client_free += traces * self._costs.merge_trace_s
            self._outcome.merging_s += traces * self._costs.merge_trace_s
            self._outcome.parts += 1
        if self._unsent:
            self._at(self._client_free, partial(self._send, self._unsent.popleft()))

    def _send(self, rank: int, now: float) -> None:
        """Send the scheduler a task."""
        self._sent.append(rank)
        self._assign(now)

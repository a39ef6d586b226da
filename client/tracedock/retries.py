"""The policy of retries: which requests are repeated, when, and for how long.

| what happened | repeated |
|---|---|
| no connection was made | every request: the server has received nothing |
| the connection broke, or no answer came in time | requests that can be repeated without a second effect |
| 429 or 503 with `Retry-After` | the same, and `DELETE` |
| the first request with the same `Idempotency-Key` is in progress | that request |

`GET`, `HEAD`, `PUT` and queries change nothing, or the same thing again. `POST` requests that create something carry an
`Idempotency-Key`, by which the server recognises the repetition. `DELETE` is not repeated after a broken connection: if
the first one was done, the second would be refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic
from typing import Optional, Union

from tracedock.errors import ApiError, UnreachableError

_BUSY = "idempotency_key_busy"


@dataclass(frozen=True)
class Retries:
    """Limits of the retries of one request. An upload that has begun has its own, `patience_s` of `Client.upload`.

    Attributes:
        attempts: maximum number of requests, with the first; 1 for no retries.
        first_pause_s: seconds before the second request. Each later pause is twice as long, and each is shortened by a
            random share of up to a quarter, so that many clients do not come back at once.
        longest_pause_s: maximum seconds of a pause that the server does not ask for.
        patience_s: seconds after the first request in which others may begin. A refusal whose `Retry-After` is later
            is an error at once.
        unreachable: whether to try a server again to which no connection can be made.
    """

    attempts: int = 4
    first_pause_s: float = 0.25
    longest_pause_s: float = 10.0
    patience_s: float = 60.0
    unreachable: bool = True


class Pauses:
    """The pauses between the attempts of one request, whose first attempt begins now.

    Args:
        retries: the limits.
        method: the method of the request.
        is_repeatable: whether a second request has no second effect.
    """

    def __init__(self, retries: Retries, method: str, *, is_repeatable: bool) -> None:
        self._retries = retries
        self._is_repeatable = is_repeatable
        self._is_repeatable_if_refused = is_repeatable or method == "DELETE"
        self._attempts = 1
        self._pause_s = retries.first_pause_s
        self._deadline = monotonic() + retries.patience_s

    def after(self, error: Union[UnreachableError, ApiError]) -> Optional[float]:
        """Return the seconds until the next attempt, after an error of the last one; None if it was the last."""
        if self._attempts >= self._retries.attempts:
            return None
        pause_s = self._unreached(error) if isinstance(error, UnreachableError) else self._refused(error)
        if pause_s is None or monotonic() + pause_s > self._deadline:
            return None
        self._attempts += 1
        return pause_s

    def _unreached(self, error: UnreachableError) -> Optional[float]:
        may_repeat = self._is_repeatable if error.connected else self._retries.unreachable
        if not may_repeat:
            return None
        pause_s = min(self._pause_s, self._retries.longest_pause_s)
        self._pause_s *= 2
        return pause_s * random.uniform(0.75, 1)  # noqa: S311 - no secret depends on it

    def _refused(self, error: ApiError) -> Optional[float]:
        is_busy = error.status in (429, 503) and self._is_repeatable_if_refused
        is_in_progress = error.code == _BUSY and self._is_repeatable
        return error.retry_after_s if is_busy or is_in_progress else None

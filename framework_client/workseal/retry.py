"""When to ask again, and after how long.

Pure but for the sleep and the randomness it is given. The number of attempts
and the total time are both bounded; the caller decides which failures are safe
to repeat.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from workseal.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter.

    Args:
        max_attempts: attempts in all, the first included; 1 never retries.
        initial_s: upper bound of the first pause, in seconds.
        factor: growth of that bound per attempt.
        max_s: largest pause, in seconds; also caps what a host asks for.
    """

    max_attempts: int = 6
    initial_s: float = 0.1
    factor: float = 2.0
    max_s: float = 5.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.initial_s < 0 or self.factor < 1 or self.max_s < 0:
            raise InvalidInputError("a retry policy needs max_attempts >= 1, factor >= 1, pauses >= 0")

    def pause_s(self, failures: int, jitter: float, *, asked_s: float | None = None) -> float:
        """Return the pause after so many failures.

        Args:
            failures: how many attempts have failed, from 1.
            jitter: uniform in [0, 1); spreads callers that failed together.
            asked_s: the least pause that the host asked for, in seconds.

        Returns:
            Seconds, between half the bound and the bound, at least ``asked_s``, at most ``max_s``.
        """
        bound = min(self.max_s, self.initial_s * self.factor ** min(failures - 1, 64))
        pause = bound * (0.5 + jitter / 2)
        return min(self.max_s, max(pause, asked_s or 0.0))


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, sleep and randomness, injected so that tests need none.

    Args:
        monotonic: seconds of a clock that never goes back.
        sleep: waits that many seconds.
        jitter: uniform in [0, 1).
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


class Attempts:
    """The attempts at one request: how many are left, and how much time.

    An attempt that lived longer than the longest pause starts the count anew:
    a connection that is cut once a minute does not use up a call of an hour.

    Args:
        policy: bounds and pauses.
        timing: clock, sleep and randomness.
        deadline_s: total seconds for all attempts and pauses.
    """

    def __init__(self, policy: RetryPolicy, timing: Timing, deadline_s: float) -> None:
        self._policy = policy
        self._timing = timing
        self._begun = timing.monotonic()
        self._end = self._begun + deadline_s
        self.failures = 0

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._timing.monotonic())

    async def again(self, asked_s: float | None = None) -> bool:
        """Count a failure and pause before the next attempt.

        Args:
            asked_s: the least pause that the host asked for, in seconds.

        Returns:
            Whether another attempt may be made; without a pause when not.
        """
        if self._timing.monotonic() - self._begun > self._policy.max_s:
            self.failures = 0
        self.failures += 1
        pause = self._policy.pause_s(self.failures, self._timing.jitter(), asked_s=asked_s)
        if self.failures >= self._policy.max_attempts or pause >= self.remaining_s:
            return False
        await self._timing.sleep(pause)
        self._begun = self._timing.monotonic()
        return True

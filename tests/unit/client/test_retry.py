from __future__ import annotations

import pytest

from workseal.errors import InvalidInputError
from workseal.retry import Attempts, RetryPolicy, Timing


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def timing(self, jitter: float = 1.0) -> Timing:
        return Timing(monotonic=lambda: self.now, sleep=self.sleep, jitter=lambda: jitter)


def test_pauses_grow_and_are_capped() -> None:
    policy = RetryPolicy(initial_s=0.1, factor=2, max_s=0.5)
    assert [policy.pause_s(n, 1.0) for n in (1, 2, 3, 4, 500)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_jitter_takes_up_to_half_away() -> None:
    assert RetryPolicy(initial_s=1).pause_s(1, 0.0) == 0.5


@pytest.mark.parametrize(("asked", "pause"), [(None, 0.1), (0.3, 0.3), (60.0, 5.0)])
def test_pause_asked_for_is_kept_within_the_cap(asked: float | None, pause: float) -> None:
    assert RetryPolicy(initial_s=0.1, max_s=5).pause_s(1, 1.0, asked_s=asked) == pause


@pytest.mark.parametrize("bad", [{"max_attempts": 0}, {"factor": 0.5}, {"initial_s": -1}, {"max_s": -1}])
def test_senseless_policies_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        RetryPolicy(**bad)  # type: ignore[arg-type]


async def test_attempts_are_counted() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(max_attempts=3, initial_s=1), clock.timing(), 100)
    assert [await attempts.again() for _ in range(3)] == [True, True, False]
    assert clock.pauses == [1.0, 2.0]


async def test_no_pause_that_would_pass_the_deadline() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(max_attempts=9, initial_s=2), clock.timing(), 3)
    assert await attempts.again()
    assert not await attempts.again()
    assert clock.pauses == [2.0]
    assert attempts.remaining_s == 1.0


async def test_long_lived_attempt_starts_the_count_anew() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(max_attempts=2, initial_s=1, max_s=5), clock.timing(), 1000)
    for _ in range(5):
        clock.now += 60
        assert await attempts.again()
    assert not await attempts.again()


def test_remaining_time_is_never_negative() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(), clock.timing(), 1)
    clock.now += 5
    assert attempts.remaining_s == 0.0

"""What signals mean while a command of the caller's runs."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from workseal_host.cli.signals import Interruptions, Phase


@pytest.fixture
def left() -> list[str]:
    """How often leaving was asked for."""
    return []


@pytest.fixture
def interruptions(left: list[str]) -> Interruptions:
    """A call that has not begun."""
    return Interruptions(lambda: left.append("left"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_before_it_begins_any_signal_leaves(
    interruptions: Interruptions, left: list[str], number: signal.Signals
) -> None:
    interruptions.take(number)

    assert left == ["left"]


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        pytest.param(signal.SIGINT, False, id="the-keyboard-is-the-commands"),
        pytest.param(signal.SIGTERM, True, id="term"),
        pytest.param(signal.SIGHUP, True, id="hup"),
    ],
)
async def test_while_it_runs(
    interruptions: Interruptions, left: list[str], number: signal.Signals, ends: bool
) -> None:
    cancelled = asyncio.Event()
    interruptions.running(cancelled)

    interruptions.take(number)

    assert (cancelled.is_set(), left) == (ends, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_once_it_is_over_the_receipt_comes_first(
    interruptions: Interruptions,
    left: list[str],
    number: signal.Signals,
    capfd: pytest.CaptureFixture[str],
) -> None:
    interruptions.sealing()

    interruptions.take(number)

    assert left == []
    assert "receipt is being made" in capfd.readouterr().err


async def test_signals_are_taken_while_watched_and_given_back(
    interruptions: Interruptions, left: list[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptions.watched():
        os.kill(os.getpid(), signal.SIGHUP)
        while not left:
            await asyncio.sleep(0)

    assert interruptions.phase is Phase.BEFORE
    assert signal.getsignal(signal.SIGTERM) == before


async def test_what_the_caller_ignores_stays_ignored(interruptions: Interruptions, left: list[str]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptions.watched():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

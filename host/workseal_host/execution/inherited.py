"""Run a command with the caller's own terminal, standard input and environment (``workseal run``).

A stream that is a terminal is handed on untouched and is not captured: its bytes are what the person sees.
Any other stream passes through unchanged while its digest is taken. The command stays in the caller's
process group, so that Ctrl-C and job control reach it as they would without us; what it leaves behind is
ended all the same. Only where the isolation has to take it out of the caller's session does Ctrl-C end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from workseal_host.execution.isolation import Isolation
from workseal_host.execution.process import Program, Streams, run_process
from workseal_host.execution.result_text import status_lines
from workseal_host.execution.tool import ProcessIdentity, ToolContext, ToolResult
from workseal_host.workspace.root import WorkspaceRoot

NO_TIMEOUT_S = 366 * 24 * 3600.0
_KEYBOARD_SIGNALS = (signal.SIGINT, signal.SIGQUIT)


async def run_inherited(
    argv: Sequence[str],
    *,
    root: WorkspaceRoot,
    environment: Mapping[str, str],
    isolation: Isolation,
    cwd: tuple[str, ...] = (),
    cancelled: asyncio.Event | None = None,
    timeout_s: float = NO_TIMEOUT_S,
    streams: tuple[int, int, int] = (0, 1, 2),
) -> ToolResult:
    """Run a command as if the caller had started it.

    Args:
        argv: the command.
        root: the workspace.
        environment: its whole environment; nothing is taken away, and nothing of it is recorded.
        isolation: how it is isolated.
        cwd: components of the working directory below the root.
        cancelled: set to end it.
        timeout_s: seconds until it is ended.
        streams: the caller's standard input, output and error.

    Returns:
        How it ended. ``result`` holds status lines only: the caller has seen the output. A stream that
        is a terminal is empty there.

    Raises:
        IsolationError: the isolation could not be set up; nothing ran.
        WorkspaceError: the workspace cannot be used; nothing ran.
    """
    cancelled = cancelled or asyncio.Event()
    context = ToolContext(
        root=root,
        environment=environment,
        isolation=isolation,
        timeout_s=timeout_s,
        cancelled=cancelled,
        on_started=_keyboard_cancels(cancelled) if isolation.needs_own_session else None,
    )
    with _keyboard_is_the_commands():
        outcome = await run_process(Program(argv=tuple(argv), cwd=cwd), context, streams=Streams(*streams))
    lines = status_lines(outcome, timeout_s=timeout_s)
    return ToolResult(
        result="".join(line + "\n" for line in lines).encode(),
        exit_code=127 if outcome.start_failure is not None else outcome.exit_code,
        signal=outcome.signal,
        timed_out=outcome.timed_out,
        cancelled=outcome.cancelled,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        leftover_processes=outcome.leftover_processes,
        survivors=outcome.survivors,
    )


def _keyboard_cancels(cancelled: asyncio.Event) -> Callable[[ProcessIdentity], None]:
    """Return what makes Ctrl-C end a command that it does not reach.

    Only once bubblewrap runs: it inherits what is ignored, and a handler is not inherited.
    """
    loop = asyncio.get_running_loop()

    def started(_: ProcessIdentity) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _KEYBOARD_SIGNALS:
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(cancelled.set))

    return started


@contextlib.contextmanager
def _keyboard_is_the_commands() -> Iterator[None]:
    """Ignore Ctrl-C and Ctrl-\\ while the command runs; it decides what they mean.

    Ignored, not handled: bubblewrap inherits that, and would otherwise die of a key meant for the command.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _KEYBOARD_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

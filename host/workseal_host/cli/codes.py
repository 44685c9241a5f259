"""Exit codes.

0 yes or done, 1 a negative answer, 2 usage or unreadable input, 3 host
unreachable. ``run`` and ``exec`` pass the tool's own code through instead, with
128 + signal, 124 for our time-out and 125 for every failure of ours.
"""

from __future__ import annotations

from typing import Final

from workseal.errors import HostError as AnsweredError
from workseal.errors import HostUnreachableError, NotVerifiedError, WorksealError
from workseal_host.errors import NotFoundError

NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
TIMED_OUT: Final = 124
OUR_FAILURE: Final = 125
SIGNALLED: Final = 128
INTERRUPTED: Final = 130
READER_GONE: Final = 141

#: Verbs whose exit code is that of a tool.
PASS_THROUGH_VERBS: Final = frozenset({"run", "exec"})


def exit_code(error: WorksealError) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, HostUnreachableError):
        return UNREACHABLE
    if isinstance(error, NotVerifiedError | AnsweredError | NotFoundError):
        return NEGATIVE
    return USAGE


def tool_exit_code(*, code: int | None, signal: int | None, timed_out: bool) -> int:
    """Return the exit code that passes a tool's end through.

    Args:
        code: the tool's own; None where it did not exit by itself.
        signal: what ended it; None where nothing did.
        timed_out: whether its time was up.
    """
    if timed_out:
        return TIMED_OUT
    if signal is not None:
        return SIGNALLED + signal
    return code if code is not None else OUR_FAILURE

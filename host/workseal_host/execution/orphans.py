"""What a tool leaves when it kills its own supervisor.

Without a pid namespace, a tool of the same user can kill the supervisor. Its processes are then
re-parented to the nearest child subreaper: the host, once :func:`harden_process` made it one. An orphan is
a child of the host with a session of its own that is no supervisor the host knows; supervisors get theirs
from the host, all other children of the host stay in the host's session.

Where the host is no subreaper (a library user, macOS) nobody can tell, and that is the answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

from workseal_host.execution.supervisor import descendants, process_table

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# A supervisor is unknown for a moment between its fork and adopt(); an orphan is seen twice.
_SECOND_LOOK_S = 0.1
_GIVE_UP_S = 5.0

_supervisors: set[int] = set()
_hardened = False


def harden_process() -> bool:
    """Make this process unreadable to others of the same user, and the one that inherits its tools' orphans.

    Not dumpable: no other process without CAP_SYS_PTRACE can attach to it or read its memory,
    environment or descriptors through ``/proc`` (prctl(2), ptrace(2)).

    Returns:
        Whether the system could do so (Linux).
    """
    global _hardened  # noqa: PLW0603  # a fact about the process, set once
    if sys.platform != "linux":
        return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    hidden: bool = prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    _hardened = prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return hidden and _hardened


def adopt(pid: int) -> None:
    """Know ``pid`` as a supervisor of ours."""
    _supervisors.add(pid)


def end_orphans(pid: int, *, lost: bool) -> bool:
    """Forget a supervisor that has ended, and end what it left if it was killed. Blocks for a moment then.

    Args:
        pid: the supervisor.
        lost: whether it ended without its final report.

    Returns:
        Whether something may be left.
    """
    _supervisors.discard(pid)
    if not lost:
        return False
    if not _hardened:
        return True
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        seen = _candidates()
        if not seen:
            return False
        time.sleep(_SECOND_LOOK_S)
        for orphan in seen & _candidates():
            _end_tree(orphan[0])
    return bool(_candidates())


def _candidates() -> set[tuple[int, int]]:
    """Return (pid, start time) of the children of this process that look like orphans."""
    own_session = os.getsid(0)
    found = set()
    for pid, entry in process_table().items():
        if entry.parent == os.getpid() and entry.session != own_session and pid not in _supervisors:
            found.add((pid, entry.start_time))
    return found


def _end_tree(pid: int) -> None:
    for member in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)

"""Processes of an execution that outlived its host.

A supervisor carries the execution's id in its command line from its first
instruction on, so nothing has to be noted after it was started. When the host is
gone the supervisor (or its pid namespace) ends everything below it by itself; here
that is waited for, and helped along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from workseal_host.execution.supervisor import descendants

_SCRIPT = b"/execution/supervisor.py"
_POLL_S = 0.02
# The supervisor repeats KILL for five seconds before it gives up.
_PATIENCE_S = 6.0
_AFTER_KILL_S = 2.0


def boot_id() -> str:
    """Return what names this run of the kernel; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def end_remains(execution_id: str, *, boot: str) -> bool:
    """Wait for the processes of an execution to end, then end them. Blocks: call it in a thread.

    Args:
        execution_id: whose processes.
        boot: :func:`boot_id` when they were started.

    Returns:
        Whether it is certain that none is left.
    """
    if boot and boot != boot_id():
        return True
    if sys.platform != "linux":
        return False
    if _gone(execution_id, _PATIENCE_S):
        return True
    for pid in _supervisors(execution_id):
        for member in (*descendants(pid), pid):
            with contextlib.suppress(OSError):
                os.kill(member, signal.SIGKILL)
    return _gone(execution_id, _AFTER_KILL_S)


def _gone(execution_id: str, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while _supervisors(execution_id):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _supervisors(execution_id: str) -> list[int]:
    return [pid for pid in _pids() if _is_supervisor(_command_line(pid), execution_id.encode())]


def _is_supervisor(command: list[bytes], tag: bytes) -> bool:
    # Others may name the execution too, such as a command that waits for it.
    return tag in command[-1:] and any(part.endswith(_SCRIPT) for part in command)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _command_line(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().removesuffix(b"\0").split(b"\0")
    return []

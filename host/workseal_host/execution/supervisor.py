"""Start one tool, watch it, and end everything that it leaves behind.

A script of its own, standard library only: ``python -I -S -B supervisor.py SPEC CONTROL REPORT [TAG]``,
where the first three are inherited descriptors. ``TAG`` lets the process be found again in ``ps``.

- SPEC: one JSON object (see :class:`Specification`); text is UTF-8 with surrogate escapes.
- CONTROL: the byte ``t`` asks to end the tool (TERM, grace, KILL). End of file means that the
  host is gone: everything is killed at once, so that nothing outlives the host.
- REPORT: JSON lines ``starting``, ``failed``, ``exited``, ``finished``.

Invariants: exit code and signal are reported apart; ``finished`` is written only after no descendant
is left, or says that one survived; a signal is never sent to a process outside the tool's own tree.
On Linux the supervisor is a child subreaper or the init of a pid namespace, so a descendant that calls
``setsid`` or forks twice stays in its tree. Elsewhere only the tool's process group can be ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_POLL_S = 0.02
# How long KILL is repeated before a process counts as one that cannot be ended (uninterruptible sleep).
_GIVE_UP_S = 5.0


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _encode(text: str) -> bytes:
    # Explicit: the file system encoding follows the locale, and the command must stay byte-identical.
    return text.encode("utf-8", "surrogateescape")


class Specification:
    """What to start, and how.

    Args:
        data: the JSON object: ``argv``; ``root`` and its ``device`` and ``inode``; ``cwd``, components
            below the root; ``environment``; ``new_session``; ``pid_namespace``; ``kill_grace_s``,
            ``settle_s``, ``leftover_grace_s`` in seconds.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.argv = [_encode(item) for item in data["argv"]]
        self.root = _encode(data["root"])
        self.identity = (int(data["device"]), int(data["inode"]))
        self.cwd = [_encode(item) for item in data["cwd"]]
        self.environment = {_encode(key): _encode(value) for key, value in data["environment"].items()}
        self.new_session = bool(data["new_session"])
        # kill(-1) is only ever meant for a namespace of our own.
        self.is_init = bool(data["pid_namespace"]) and os.getpid() == 1
        self.kill_grace_s = float(data["kill_grace_s"])
        self.settle_s = float(data["settle_s"])
        self.leftover_grace_s = float(data["leftover_grace_s"])


class ProcessEntry(NamedTuple):
    """One line of the process table; ``start_time`` in clock ticks since boot."""

    parent: int
    session: int
    state: str
    start_time: int


def _process_entry(pid: int) -> ProcessEntry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold anything, so fields count from the last parenthesis (proc(5)).
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (
        ProcessEntry(int(fields[1]), int(fields[3]), fields[0].decode(), int(fields[19])) if fields else None
    )


def process_table() -> dict[int, ProcessEntry]:
    """Return every visible process by its pid (Linux; nothing elsewhere)."""
    names = os.listdir("/proc") if _LINUX else []
    entries = ((int(name), _process_entry(int(name))) for name in names if name.isdigit())
    return {pid: entry for pid, entry in entries if entry is not None}


def descendants(own_pid: int) -> dict[int, int]:
    """Return pid -> start time of every living descendant of a process (Linux)."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    found: dict[int, int] = {}
    pending = [own_pid]
    while pending:
        for pid in children.get(pending.pop(), ()):
            pending.append(pid)
            if table[pid].state not in ("Z", "X"):
                found[pid] = table[pid].start_time
    return found


def _signal_process(pid: int, start_time: int, number: int) -> None:
    """Signal a process, unless its pid has come to name another one meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        entry = _process_entry(pid)
        if entry is not None and entry.start_time == start_time:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _enter(specification: Specification) -> None:
    """Change to the working directory: below the very root the host holds, through no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(specification.root, flags)
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) != specification.identity:
        raise FileNotFoundError(errno.ENOENT, "the workspace's root was replaced")
    for component in specification.cwd:
        below = os.open(component, flags | os.O_NOFOLLOW, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.fchdir(descriptor)
    os.close(descriptor)


def _reset_signals() -> None:
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _become_tool(specification: Specification, supervisor_pid: int, error_fd: int) -> NoReturn:
    """Turn the forked child into the tool; a failure goes to ``error_fd`` as ``stage errno``."""
    stage = "session"
    try:
        if specification.new_session:
            os.setsid()
        # The main process must not outlive its supervisor; what it forked is re-parented to the host.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor_pid:
            os._exit(127)
        stage = "cwd"
        _enter(specification)
        stage = "exec"
        _reset_signals()
        os.execvpe(specification.argv[0], specification.argv, specification.environment)  # noqa: S606
    except (OSError, ValueError) as error:
        os.write(error_fd, f"{stage} {getattr(error, 'errno', None) or 0}".encode())
    finally:
        os._exit(127)


class Supervisor:
    """The life of one tool.

    Args:
        specification: what to start.
        control_fd: where the host's wishes come from.
        report_fd: where reports go.
    """

    def __init__(self, specification: Specification, control_fd: int, report_fd: int) -> None:
        self._specification = specification
        self._control_fd = control_fd
        self._report_fd = report_fd
        self._main_pid = 0
        self._main_ended = False
        self._ending = False
        self._kill_at: float | None = None
        self._control_open = True
        self._wakeup_fd, wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_fd, False)
        os.set_blocking(wakeup_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Start the tool and see it to its end."""
        if not self._start():
            return
        while not self._main_ended:
            self._step()
        leftover = 0 if self._ending else self._settle()
        survivors = self._end_rest()
        self._report(event="finished", leftover=leftover, survivors=survivors)

    def _start(self) -> bool:
        # Before the fork: from here on nobody may say that nothing ran.
        self._report(event="starting")
        error_read, error_write = os.pipe()
        supervisor_pid = os.getpid()
        self._main_pid = os.fork()
        if self._main_pid == 0:
            _become_tool(self._specification, supervisor_pid, error_write)
        os.close(error_write)
        self._let_go_of_streams()
        failure = os.read(error_read, 64).decode()
        os.close(error_read)
        if failure:
            stage, _, number = failure.partition(" ")
            os.waitpid(self._main_pid, 0)
            self._report(event="failed", stage=stage, errno=int(number))
            return False
        return True

    @staticmethod
    def _let_go_of_streams() -> None:
        # End of file must come when the *tool's* processes are gone, not when we are.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(null)

    def _report(self, **fields: Any) -> None:
        # A host that is gone reads no reports; its tools must be ended all the same.
        with contextlib.suppress(OSError):
            os.write(self._report_fd, json.dumps(fields).encode() + b"\n")

    def _step(self, limit_s: float | None = None) -> None:
        """Wait for the next event, then reap and, where it is time, kill."""
        now = time.monotonic()
        waits = [limit_s] if limit_s is not None else []
        if self._kill_at is not None:
            waits.append(max(self._kill_at - now, _POLL_S))
        self._wait(min(waits) if waits else None)
        self._reap()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_all(signal.SIGKILL)

    def _wait(self, timeout_s: float | None) -> None:
        # poll, not select: descriptor numbers are the host's, and may exceed 1024.
        poller = select.poll()
        poller.register(self._wakeup_fd, select.POLLIN)
        if self._control_open:
            poller.register(self._control_fd, select.POLLIN)
        milliseconds = None if timeout_s is None else max(1, round(timeout_s * 1000))
        ready = [descriptor for descriptor, _events in poller.poll(milliseconds)]
        if self._wakeup_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup_fd, 4096)
        if self._control_fd in ready:
            self._obey(os.read(self._control_fd, 64))

    def _obey(self, wish: bytes) -> None:
        now = time.monotonic()
        if not wish:
            self._control_open = False
            self._ending, self._kill_at = True, now
        elif not self._ending:
            self._ending, self._kill_at = True, now + self._specification.kill_grace_s
            self._signal_all(signal.SIGTERM)

    def _reap(self) -> bool:
        """Collect what has ended.

        Returns:
            Whether a child is left.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main_pid:
                self._main_ended = True
                code = os.waitstatus_to_exitcode(status)
                self._report(
                    event="exited", exit_code=code if code >= 0 else None, signal=-code if code < 0 else None
                )

    def _anything_left(self) -> bool:
        if self._reap():
            return True
        if _LINUX or not self._specification.new_session:
            return False
        try:
            os.killpg(self._main_pid, 0)
        except OSError:
            return False
        return True

    def _settle(self) -> int:
        """Let what is about to end by itself end, then ask the rest to.

        Returns:
            The number of processes that were left running.
        """
        deadline = time.monotonic() + self._specification.settle_s
        while self._anything_left() and not self._ending and time.monotonic() < deadline:
            self._step(_POLL_S)
        if self._ending or not self._anything_left():
            return 0
        leftover = max(1, len(descendants(os.getpid()))) if _LINUX else 1
        self._kill_at = time.monotonic() + self._specification.leftover_grace_s
        self._signal_all(signal.SIGTERM)
        return leftover

    def _end_rest(self) -> bool:
        """End whatever is left.

        Returns:
            Whether something could not be ended, or nobody could tell.
        """
        if self._kill_at is None:
            return not _LINUX and not self._specification.new_session
        give_up = max(self._kill_at, time.monotonic()) + _GIVE_UP_S
        while self._anything_left():
            if time.monotonic() > give_up:
                return True
            self._step(_POLL_S)
        return not _LINUX and not self._specification.new_session

    def _signal_all(self, number: int) -> None:
        if self._specification.is_init:
            # One system call for all, so that nothing forks its way past it.
            with contextlib.suppress(OSError):
                os.kill(-1, number)
                os.kill(-1, signal.SIGCONT)
        elif _LINUX:
            for pid, start_time in descendants(os.getpid()).items():
                _signal_process(pid, start_time, number)
                _signal_process(pid, start_time, signal.SIGCONT)
        elif self._specification.new_session:
            with contextlib.suppress(OSError):
                os.killpg(self._main_pid, number)
        elif not self._main_ended:
            os.kill(self._main_pid, number)


def _ignore_signals() -> None:
    # Only the control descriptor ends a tool: a tool may send us signals, and Ctrl-C is the tool's to handle.
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_IGN)


def main(arguments: list[str]) -> None:
    """Run as a script.

    Args:
        arguments: the three descriptors, and optionally a tag.
    """
    spec_fd, control_fd, report_fd = (int(item) for item in arguments[:3])
    for descriptor in (control_fd, report_fd):
        os.set_inheritable(descriptor, False)
    with os.fdopen(spec_fd, "rb") as file:
        file.seek(0)
        specification = Specification(json.load(file))
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _ignore_signals()
    Supervisor(specification, control_fd, report_fd).run()


if __name__ == "__main__":
    main(sys.argv[1:])

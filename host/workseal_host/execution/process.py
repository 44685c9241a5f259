"""Run one program under the supervisor, and see all of it to its end.

Invariants: when :func:`run_process` returns, nothing of the program is left, or ``survivors`` says so; the
program inherits no descriptor but its three streams and no environment but what it is given; memory is
bounded whatever it prints; a caller that goes away (task cancellation, crash) takes the program with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from workseal_host.errors import IsolationError, WorkspaceError
from workseal_host.execution.descriptors import Descriptors
from workseal_host.execution.isolation import PRIVATE_DIRS, SUPERVISOR
from workseal_host.execution.orphans import adopt, end_orphans
from workseal_host.execution.output import CapturedStream, StreamCapture
from workseal_host.execution.pump import Pump
from workseal_host.execution.tool import ProcessIdentity, ToolContext

SETTLE_S = 0.2
LEFTOVER_GRACE_S = 0.3
# After all processes are gone; only a descriptor handed to a foreign process can keep a pipe open longer.
_DRAIN_S = 1.0
# On top of the supervisor's own limits, before it counts as lost itself.
_SUPERVISOR_GRACE_S = 8.0
_SAID_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    Args:
        argv: the program and its arguments, each passed on byte for byte as UTF-8.
        cwd: components of the working directory below the root.
        stdin: what it reads; None for nothing at all.
        network: whether it keeps the machine's network (only isolation can take it away).
    """

    argv: Sequence[str]
    cwd: tuple[str, ...] = ()
    stdin: bytes | None = None
    network: bool = True


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a program did not start.

    Args:
        stage: ``cwd`` or ``exec`` (or ``session``).
        errno: the system's error number.
    """

    stage: str
    errno: int

    @property
    def text(self) -> str:
        """For people and models."""
        what = {"cwd": "the working directory cannot be entered", "exec": "the program cannot be started"}
        return f"{what.get(self.stage, self.stage)}: {os.strerror(self.errno)}"


@dataclass(frozen=True, slots=True)
class Streams:
    """The caller's own standard streams, for a program that is run on them.

    Args:
        stdin: descriptor that it reads from.
        stdout: descriptor of its output: handed on where it is a terminal, else captured and passed through.
        stderr: the same for its errors.
    """

    stdin: int
    stdout: int
    stderr: int

    def of(self, name: str) -> int:
        """Return the descriptor of ``stdout`` or ``stderr``."""
        return self.stdout if name == "stdout" else self.stderr


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a program ended; see :class:`~workseal_host.execution.tool.ToolResult` for the fields."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    cancelled: bool
    stdout: CapturedStream
    stderr: CapturedStream
    leftover_processes: int
    survivors: bool
    start_failure: StartFailure | None = None


@dataclass(slots=True)
class _Reports:
    """What the supervisor has reported so far."""

    started: bool = False
    failure: StartFailure | None = None
    exit_code: int | None = None
    signal: int | None = None
    finished: bool = False
    leftover: int = 0
    survivors: bool = False

    def take(self, line: bytes) -> None:
        report: dict[str, Any] = json.loads(line)
        match report["event"]:
            case "starting":
                self.started = True
            case "failed":
                self.failure = StartFailure(report["stage"], report["errno"])
                self.finished = True
            case "exited":
                self.exit_code, self.signal = report["exit_code"], report["signal"]
            case "finished":
                self.finished = True
                self.leftover, self.survivors = report["leftover"], report["survivors"]


class _LineReader:
    """Turn chunks of the report pipe into reports."""

    def __init__(self, reports: _Reports) -> None:
        self._reports = reports
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._reports.take(line)


async def run_process(
    program: Program, context: ToolContext, *, streams: Streams | None = None
) -> ProcessOutcome:
    """Run a program in the workspace until nothing of it is left.

    Args:
        program: what to run.
        context: root, environment, isolation, limits and callbacks.
        streams: the caller's own streams and process group for it; None for a session of its own.

    Returns:
        How it ended, ``start_failure`` included.

    Raises:
        IsolationError: the isolation could not be set up; nothing ran.
        WorkspaceError: the root was replaced; nothing ran.
    """
    context.root.check()
    run = _Run(program, context, streams)
    await run.start()
    try:
        await run.wait()
    finally:
        await run.finish()
    return run.outcome()


class _Run:
    """One run: descriptors, the supervisor, and why it was ended."""

    def __init__(self, program: Program, context: ToolContext, streams: Streams | None) -> None:
        self._program = program
        self._context = context
        self._streams = streams
        self._reports = _Reports()
        self._captures = {
            name: StreamCapture(head_limit=context.head_bytes, tail_limit=context.tail_bytes)
            for name in ("stdout", "stderr")
        }
        self._pumps: dict[str, Pump] = {}
        self._timed_out = False
        self._cancelled = False
        self._lost = False

    async def start(self) -> None:
        """Start the supervisor; on any error nothing is left open or running."""
        with Descriptors() as ours:
            specification = ours.memory_file(self._specification())
            control_read, self._control = ours.pipe()
            readers, writers = {}, {}
            for name in ("stdout", "stderr", "report"):
                if (terminal := self._terminal(name)) is not None:
                    writers[name] = terminal
                else:
                    readers[name], writers[name] = ours.pipe()
            inherited = (specification, control_read, writers["report"])
            seccomp_fd = self._context.isolation.filter_fd(ours)
            self._process = await asyncio.create_subprocess_exec(
                *self._command(inherited, seccomp_fd),
                stdin=self._stdin(ours),
                stdout=writers["stdout"],
                stderr=writers["stderr"],
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
                pass_fds=inherited if seccomp_fd is None else (*inherited, seccomp_fd),
                start_new_session=self._streams is None,
            )
            adopt(self._process.pid)
            # From here on these have owners of their own; the rest, with the write ends, is closed on
            # leaving: a copy of ours would keep the pipes from ever ending.
            for descriptor in (self._control, *readers.values()):
                ours.give_away(descriptor)
        self._pumps = {name: Pump(reader, self._sink(name)) for name, reader in readers.items()}
        for pump in self._pumps.values():
            pump.start()
        if self._context.on_started is not None:
            self._context.on_started(ProcessIdentity(self._process.pid, start_time(self._process.pid)))

    def _terminal(self, name: str) -> int | None:
        """Return the terminal that the stream is handed on to, if it is one."""
        if self._streams is None or name == "report":
            return None
        descriptor = self._streams.of(name)
        return descriptor if os.isatty(descriptor) else None

    def _stdin(self, ours: Descriptors) -> int:
        if self._streams is not None:
            return self._streams.stdin
        if self._program.stdin is not None:
            return ours.memory_file(self._program.stdin)
        return asyncio.subprocess.DEVNULL

    def _command(self, inherited: tuple[int, ...], seccomp_fd: int | None) -> list[bytes]:
        tag = [self._context.execution_id] if self._context.execution_id else []
        supervisor = [
            os.path.realpath(sys.executable),
            "-I",
            "-S",
            "-B",
            SUPERVISOR,
            *map(str, inherited),
            *tag,
        ]
        return self._context.isolation.wrap(
            supervisor,
            root=self._context.root.path,
            network=self._program.network,
            seccomp_fd=seccomp_fd,
        )

    def _specification(self) -> bytes:
        root = self._context.root
        isolated = self._context.isolation.kind == "bubblewrap"
        return json.dumps(
            {
                "argv": list(self._program.argv),
                "root": root.path.decode("utf-8", "surrogateescape"),
                "device": root.device,
                "inode": root.inode,
                "cwd": list(self._program.cwd),
                "environment": self._environment(isolated),
                "new_session": self._streams is None,
                "pid_namespace": isolated,
                "kill_grace_s": self._context.kill_grace_s,
                "settle_s": SETTLE_S,
                "leftover_grace_s": LEFTOVER_GRACE_S,
            }
        ).encode()

    def _environment(self, isolated: bool) -> dict[str, str]:
        environment = dict(self._context.environment)
        if self._streams is None:
            # There is no terminal. An editor or pager that believes in one waits for a person for ever.
            environment["TERM"] = "dumb"
        if isolated:
            # The private /tmp is the only temporary directory that can be written there.
            environment["TMPDIR"] = os.fsdecode(PRIVATE_DIRS[0])
        return environment

    def _sink(self, name: str) -> Any:
        if name == "report":
            return _LineReader(self._reports).feed
        capture = self._captures[name]

        def take(data: bytes) -> None:
            offset = capture.total_bytes
            capture.feed(data)
            self._context.on_output(name, offset, data)
            if self._streams is not None:
                self._pass_through(name, data)

        return take

    def _pass_through(self, name: str, data: bytes) -> None:
        # Blocking, so that a slow reader slows the program down as it would without us.
        streams = cast(Streams, self._streams)
        descriptor = streams.of(name)
        try:
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:
                    # Whoever shares it with us made it non-blocking; its reader is slow, not gone.
                    select.select([], [descriptor], [])
        except OSError:
            # The reader is gone. Without a reader of its own the program learns it too (SIGPIPE).
            self._pumps[name].close()

    async def wait(self) -> None:
        """Wait until the supervisor has ended; end the tool when its time is up or it is cancelled."""
        ended = asyncio.ensure_future(self._process.wait())
        cancelled = asyncio.ensure_future(self._context.cancelled.wait())
        try:
            await asyncio.wait(
                {ended, cancelled}, timeout=self._context.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended.done():
                self._cancelled = cancelled.done()
                self._timed_out = not self._cancelled
                self._ask_to_end()
                await asyncio.wait({ended}, timeout=self._context.kill_grace_s + _SUPERVISOR_GRACE_S)
        finally:
            for task in (ended, cancelled):
                task.cancel()

    def _ask_to_end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._control, b"t")

    async def finish(self) -> None:
        """Leave nothing behind, however the wait ended."""
        os.close(self._control)
        # Still there: this task was cancelled, or the supervisor does not answer. End of file on the control
        # pipe kills everything at once, and where even that fails the supervisor goes.
        if self._process.returncode is None and not await self._ended_within(_SUPERVISOR_GRACE_S):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._ended_within(_SUPERVISOR_GRACE_S)
        # The report first: whether orphans must be ended decides when the other pipes end.
        await self._pumps["report"].drain(_DRAIN_S)
        self._lost = not self._reports.finished
        left = await asyncio.to_thread(end_orphans, self._process.pid, lost=self._lost)
        # Orphans are told by their session, and in the caller's own session nobody can tell.
        self._reports.survivors |= left or (self._lost and self._streams is not None)
        await self._drain()

    async def _ended_within(self, limit_s: float) -> bool:
        try:
            await asyncio.wait_for(asyncio.shield(self._process.wait()), limit_s)
        except TimeoutError:
            return False
        return True

    async def _drain(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        for pump in self._pumps.values():
            await pump.drain(max(0.0, deadline - time.monotonic()))

    def outcome(self) -> ProcessOutcome:
        stdout, stderr = (self._captures[name].finish() for name in ("stdout", "stderr"))
        self._refuse_if_not_started(stderr)
        reports = self._reports
        unknown_end = self._lost and reports.exit_code is None and reports.signal is None
        return ProcessOutcome(
            exit_code=reports.exit_code,
            # A killed supervisor takes the main process with it (PR_SET_PDEATHSIG, or its namespace).
            signal=int(signal.SIGKILL) if unknown_end else reports.signal,
            timed_out=self._timed_out,
            cancelled=self._cancelled,
            stdout=stdout,
            stderr=stderr,
            leftover_processes=reports.leftover,
            survivors=reports.survivors,
            start_failure=reports.failure,
        )

    def _refuse_if_not_started(self, stderr: CapturedStream) -> None:
        reports = self._reports
        if reports.failure is not None and reports.failure.stage == "cwd" and not self._program.cwd:
            raise WorkspaceError("the workspace's root cannot be entered; nothing ran")
        if self._lost and not reports.started and not (self._timed_out or self._cancelled):
            said = stderr.head[:_SAID_BYTES].decode("utf-8", "replace").strip()
            raise IsolationError(
                f"the tool's supervisor did not start under isolation {self._context.isolation.kind!r}; "
                f"nothing ran. It said: {said or 'nothing'}"
            )


def start_time(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None

"""What a tool is: its name, its schema, what it does to the workspace, and one run of it.

Invariants: a tool that ran ends in a :class:`ToolResult`, whatever came of it; an exception means that
nothing ran, or that the host cannot tell. Exit code, signal, time-out and cancellation are four fields.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from workseal_host.execution.isolation import Isolation
from workseal_host.execution.output import HEAD_BYTES, TAIL_BYTES, CapturedStream
from workseal_host.execution.schema import ArgumentsSchema
from workseal_host.execution.view import WorkspaceView
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.root import WorkspaceRoot

DEFAULT_TIMEOUT_S = 600.0
KILL_GRACE_S = 2.0

OutputCallback = Callable[[str, int, bytes], None]


def ignore_output(_stream: str, _offset: int, _data: bytes) -> None:
    """Take output and do nothing with it."""


@dataclass(frozen=True, slots=True)
class SideEffects:
    """What a tool may do, as frameworks declare it; the default is the strictest.

    Args:
        read_only: changes nothing.
        mutates_workspace: may change the workspace.
        exclusive: must not run beside another call.
        stateful_action: has effects that a second run would repeat.
        pagination: answers in pages.
    """

    read_only: bool = False
    mutates_workspace: bool = True
    exclusive: bool = True
    stateful_action: bool = True
    pagination: bool = False


READ_ONLY = SideEffects(read_only=True, mutates_workspace=False, exclusive=False, stateful_action=False)


@dataclass(frozen=True, slots=True)
class PredictedEffect:
    """One path that a call will change.

    Args:
        path: raw path below the root.
        before: its state before; None where there is nothing.
        after: its state after; None where there will be nothing.
    """

    path: bytes
    before: EntryState | None
    after: EntryState | None


Prediction = list[PredictedEffect]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """How a process of a call is found again after a crash.

    Args:
        pid: process id of the outermost process that the host started.
        start_time: its start time in clock ticks since boot; None where the system does not tell.
    """

    pid: int
    start_time: int | None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """All that one run may use.

    Args:
        root: the workspace.
        environment: the whole environment of the tool's processes (see ``environment.py``).
        isolation: how its processes are isolated.
        timeout_s: seconds until it is ended.
        on_output: gets (``stdout`` or ``stderr``, offset, raw bytes) of every chunk; must not block.
        cancelled: set to end the run.
        view: the workspace before the call; without one, ignored paths cannot be refused.
        kill_grace_s: seconds between TERM and KILL.
        head_bytes: bytes kept from the start of each stream.
        tail_bytes: bytes kept from the end of each stream.
        execution_id: shown in the supervisor's command line.
        on_started: called once with the identity of the process, before the tool itself starts.
    """

    root: WorkspaceRoot
    environment: Mapping[str, str]
    isolation: Isolation
    timeout_s: float = DEFAULT_TIMEOUT_S
    on_output: OutputCallback = ignore_output
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    view: WorkspaceView | None = None
    kill_grace_s: float = KILL_GRACE_S
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = TAIL_BYTES
    execution_id: str = ""
    on_started: Callable[[ProcessIdentity], None] | None = None


_NOTHING = CapturedStream.of(b"")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one run.

    Args:
        result: UTF-8 text for the model.
        exit_code: the main process's own code; None when it did not exit by itself.
        signal: number of the signal that ended the main process; None when it exited.
        timed_out: whether the host ended it because its time was up.
        cancelled: whether the host ended it because it was asked to.
        stdout: the standard output.
        stderr: the standard error.
        leftover_processes: how many processes it left running, which were then ended.
        survivors: whether something of it may still run: it could not be ended, or nobody can tell.
    """

    result: bytes
    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    stdout: CapturedStream = _NOTHING
    stderr: CapturedStream = _NOTHING
    leftover_processes: int = 0
    survivors: bool = False


class Tool(ABC):
    """One named operation.

    Args:
        name: its name in requests and receipts.
        description: for the model.
        schema: JSON Schema 2020-12 of its arguments.
        side_effects: what it may do.
        default_timeout_s: its time limit in seconds where a request names none.
        confined: whether its effects are declared to lie in the workspace alone.
    """

    #: Whether it is code of the host that starts no process, so that there is nothing to isolate.
    runs_in_host: ClassVar[bool] = False

    def __init__(
        self,
        *,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        side_effects: SideEffects,
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        confined: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.schema: dict[str, Any] = dict(schema)
        self.side_effects = side_effects
        self.default_timeout_s = default_timeout_s
        self.confined = confined
        self._validator = ArgumentsSchema(self.schema)

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments before anything is done with them.

        Args:
            arguments: the parsed JSON object.

        Raises:
            ArgumentsError: with the JSON pointer of the argument; never with its value.
        """
        self._validator.validate(arguments)
        self._check(arguments)

    def _check(self, arguments: Mapping[str, Any]) -> None:  # noqa: B027  # optional on purpose
        """Check what a schema cannot say; overridden where there is something."""

    def predict(self, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        """Say what a run would change, from the state before it. May read files: call it in a thread.

        Args:
            arguments: valid arguments.
            view: the workspace before the call.

        Returns:
            Every path that would change; the tool's own path with two equal states, where nothing
            would; None when that cannot be told.

        Raises:
            ArgumentsError: an argument names an ignored path, where no change would be attested.
        """
        del arguments, view
        return [] if self.side_effects.read_only else None

    @abstractmethod
    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run once.

        Args:
            arguments: valid arguments.
            context: all that the run may use.

        Raises:
            ArgumentsError: an argument names an ignored path; nothing ran.
            IsolationError: the isolation could not be set up; nothing ran.
            WorkspaceError: the workspace cannot be used; nothing ran.
        """

"""The order of the stages of one execution. The only place that knows it.

::

    validate -> look up and claim -> lock -> scan before -> precondition
      -> mark in flight -> execute -> scan after -> verify -> sign -> commit

An execution runs in a task of its own: a caller that goes away never cancels it.
Whatever happens after *in flight* ends in a signed outcome, or the row stays in
flight and is settled at the next start, before anything else is served.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from workseal.canonical import canonical_json
from workseal.receipt import statement as form
from workseal_host.assembly import Facts, precondition_differences, precondition_problem
from workseal_host.coordination.live import Accepted, LiveExecution, Outcome
from workseal_host.coordination.lock import Ticket, WorkspaceLock
from workseal_host.errors import (
    ArgumentsError,
    BusyError,
    HostError,
    LedgerError,
    QueueTimeoutError,
    RootReplacedError,
    StateError,
    WorkspaceError,
)
from workseal_host.execution.isolation import Isolation
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.tool import Tool, ToolContext, ToolResult
from workseal_host.execution.view import TreeView
from workseal_host.ledger.model import Claim, ExecutionRow, InFlight, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.observing import Observer, View
from workseal_host.requests import CallRequest
from workseal_host.sealing import Sealer
from workseal_host.workspace.ignore import IgnorePolicy

log = structlog.get_logger("workseal.pipeline")

MAX_QUEUE = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """How the pipeline treats calls.

    Attributes:
        protected_paths: globs of paths that no tool should change.
        include_arguments: whether receipts carry the text of arguments.
        environment: environment of tools.
        max_queue: how many calls may wait for the workspace.
    """

    protected_paths: tuple[str, ...]
    include_arguments: bool
    environment: Mapping[str, str]
    max_queue: int = MAX_QUEUE


@dataclass(frozen=True, slots=True)
class Clock:
    """Where times come from: wall clock and monotonic clock, both in ns."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns


@dataclass(slots=True)
class _Call:
    """One call on its way through the stages."""

    request: CallRequest
    row: ExecutionRow
    live: LiveExecution
    tool: Tool | None
    refusal: tuple[str, str] | None = None
    ticket: Ticket | None = None
    started_monotonic_ns: int = 0
    facts: Facts | None = None


@dataclass(eq=False)
class Observation:
    """An announced call that holds the workspace until its end is told."""

    call: _Call
    ended: asyncio.Future[ToolResult]
    task: asyncio.Task[None] | None = field(default=None)


class Pipeline:
    """Run tool calls on one workspace, once each, and attest them."""

    def __init__(
        self,
        *,
        observer: Observer,
        registry: ToolRegistry,
        isolation: Isolation,
        ledger: Ledger,
        sealer: Sealer,
        workspace_id: str,
        settings: Settings,
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._observer = observer
        self._registry = registry
        self._isolation = isolation
        self._ledger = ledger
        self._sealer = sealer
        self._workspace_id = workspace_id
        self._settings = settings
        self._clock = clock or Clock()
        self._new_id = new_id
        self._lock = WorkspaceLock()
        self._claiming = asyncio.Lock()
        self._live: dict[str, LiveExecution] = {}
        self._observations: dict[str, Observation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.root_replaced = asyncio.Event()

    # -- what callers may ask for -----------------------------------------

    async def execute(
        self, request: CallRequest, *, deadline: float | None = None
    ) -> LiveExecution | Outcome:
        """Run a tool once, join its running execution, or return its stored outcome.

        Args:
            request: the call.
            deadline: loop time until which the caller is willing to queue; None for ever.

        Raises:
            KeyConflictError, BusyError, LedgerError, RootReplacedError: nothing ran.
        """
        found = await self._claim(request, deadline, self._run)
        return found if isinstance(found, Outcome) else found.live

    async def begin_observation(
        self, request: CallRequest, *, deadline: float | None = None
    ) -> Accepted | Outcome:
        """Take the workspace for a call that somebody else runs.

        Returns:
            What the workspace was, or the outcome where the call was refused or is over.
        """
        found = await self._claim(request, deadline, self._observe)
        if isinstance(found, Outcome):
            return found
        async for event in found.live.events():
            if isinstance(event, Accepted | Outcome):
                return event
        raise StateError("the observation ended without an outcome")

    async def end_observation(self, execution_id: str, claimed: ToolResult) -> Outcome:
        """Attest the interval of an observation; ending it twice returns the stored outcome.

        Raises:
            NotFoundError: there is no such observation.
        """
        observation = self._observations.get(execution_id)
        if observation is None:
            row = await self._ledger.execution(execution_id=execution_id)
            if row.mode != "observed":
                raise StateError("that execution is not an observation; use WaitExecution")
            return await self.stored_outcome(row)
        if not observation.ended.done():
            observation.ended.set_result(claimed)
        return await asyncio.shield(observation.call.live.finished)

    async def wait(self, *, execution_id: str = "", key: str = "") -> LiveExecution | Outcome:
        """Return the running execution, or the stored outcome of one that is over.

        Raises:
            NotFoundError: there is no such execution.
        """
        row = await self._ledger.execution(execution_id=execution_id, idempotency_key=key)
        return self._live.get(row.execution_id) or await self.stored_outcome(row)

    async def cancel(self, *, execution_id: str = "", key: str = "") -> tuple[ExecutionRow, bool]:
        """Ask for an execution to be ended.

        Returns:
            Its row, and whether its end is under way.
        """
        row = await self._ledger.execution(execution_id=execution_id, idempotency_key=key)
        if row.mode == "observed" and not row.state.is_final:
            raise StateError("an observation is ended with EndObservation")
        live = self._live.get(row.execution_id)
        if live is not None:
            live.cancelled.set()
        return row, live is not None

    async def look(self, *, deadline: float | None = None, **how: Any) -> View:
        """Scan the workspace while no tool changes it."""
        ticket = self._lock.enter(exclusive=False)
        try:
            await self._granted(ticket, lambda: deadline)
            return await self._observer.look(**how)
        finally:
            self._lock.leave(ticket)

    async def stored_outcome(self, row: ExecutionRow) -> Outcome:
        """Return the outcome of an execution that is over."""
        if row.receipt_position is None:
            if row.state.is_final:
                raise QueueTimeoutError("that execution was given up in the queue; nothing ran, ask again")
            raise LedgerError("that execution could not be closed; it is settled when the host starts again")
        receipt = await self._ledger.receipt(position=row.receipt_position)
        return Outcome(receipt, await self._ledger.output(receipt), replayed=True)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; let running ones finish, then end them. Every row is closed after.

        Args:
            grace_s: how long they may go on, in seconds.
        """
        self._stopping = True
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for live in self._live.values():
            live.cancelled.set()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # -- claim --------------------------------------------------------------

    async def _claim(
        self,
        request: CallRequest,
        deadline: float | None,
        run: Callable[[_Call], Coroutine[Any, Any, None]],
    ) -> _Call | Outcome | _Joined:
        if self.root_replaced.is_set():
            raise RootReplacedError("the workspace's root was replaced; restart the host on the new one")
        mode = "observed" if request.observed else "executed"
        call = request.call
        claim = Claim(
            execution_id=self._new_id(),
            idempotency_key=request.key(self._workspace_id),
            request_digest=request.request_digest,
            session_id=call.session_id,
            tool_call_id=call.tool_call_id,
            tool=request.tool,
            mode=mode,
            request=_stored_request(request),
        )
        # One at a time, so that a duplicate finds either no row or a row with its live execution.
        async with self._claiming:
            self._check_capacity()
            row, is_new = await self._ledger.claim(claim)
            live = self._live.get(row.execution_id)
            if live is not None:
                live.extend_queue(deadline)
                return _Joined(live)
            # Received and not live: its marking failed, so nothing ran and it may start over.
            if not is_new and row.state is not ExecutionState.RECEIVED:
                return await self.stored_outcome(row)
            return self._start(request, row, deadline, run)

    def _check_capacity(self) -> None:
        if self._stopping:
            raise BusyError("the host is stopping; nothing ran, ask the next one", stopping=True)
        if self._lock.queue_length >= self._settings.max_queue:
            raise BusyError("too many calls wait for the workspace; nothing ran, ask again later")

    def _start(
        self,
        request: CallRequest,
        row: ExecutionRow,
        deadline: float | None,
        run: Callable[[_Call], Coroutine[Any, Any, None]],
    ) -> _Call:
        live = LiveExecution(row.execution_id, queue_deadline=deadline)
        self._live[row.execution_id] = live
        call = _Call(request, row, live, self._find(request.tool))
        task = asyncio.create_task(self._guard(call, run), name=f"execution {row.execution_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return call

    def _find(self, name: str) -> Tool | None:
        try:
            return self._registry.get(name)
        except ArgumentsError:
            return None

    async def _guard(self, call: _Call, run: Callable[[_Call], Coroutine[Any, Any, None]]) -> None:
        """Run the stages; make sure that whoever waits hears something, and that the lock comes back."""
        try:
            await run(call)
        except HostError as error:
            call.live.fail(error)
        except Exception as error:
            log.exception("execution failed", execution_id=call.row.execution_id)
            call.live.fail(error)
        finally:
            if call.ticket is not None:
                self._lock.leave(call.ticket)
            self._observations.pop(call.row.execution_id, None)
            self._live.pop(call.row.execution_id, None)

    # -- the stages -----------------------------------------------------------

    async def _run(self, call: _Call) -> None:
        self._validate(call)
        facts = await self._up_to_precondition(call)
        if facts.outcome == "refused":
            call.live.finish(await self._sealer.seal(facts))
            return
        tool = call.tool
        if tool is None:
            raise StateError("an unknown tool cannot run")
        await self._mark_in_flight(call, facts)
        await self._execute(call, tool, facts)
        await self._scan_after(call, facts)
        call.live.finish(await self._sealer.seal(facts))

    async def _execute(self, call: _Call, tool: Tool, facts: Facts) -> None:
        try:
            facts.result = await tool.run(call.request.arguments, self._context(call, tool, facts))
        except (HostError, OSError) as error:
            # It may have got anywhere before it failed: say so, and let the after-scan show what is there.
            log.warning("tool failed to run", execution_id=call.row.execution_id, error=str(error))
            facts.outcome, facts.reason = "inDoubt", f"the tool could not be run to its end: {error}"

    async def _observe(self, call: _Call) -> None:
        facts = await self._up_to_precondition(call)
        if facts.outcome == "refused":
            call.live.finish(await self._sealer.seal(facts))
            return
        ended: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._observations[call.row.execution_id] = Observation(call, ended)
        await self._mark_in_flight(call, facts)
        facts.result = await self._end_of_observation(call, ended)
        if facts.result is None:
            facts.outcome = "expired"
            facts.reason = "host-stopped" if self._stopping else "no-end-was-told"
        await self._scan_after(call, facts)
        call.live.finish(await self._sealer.seal(facts))

    async def _end_of_observation(self, call: _Call, ended: asyncio.Future[ToolResult]) -> ToolResult | None:
        stopped = asyncio.ensure_future(call.live.cancelled.wait())
        try:
            await asyncio.wait(
                {ended, stopped}, timeout=call.request.ttl_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopped.cancel()
        return ended.result() if ended.done() else None

    def _validate(self, call: _Call) -> None:
        if call.tool is None:
            call.refusal = ("unknown-tool", "no tool of that name is registered; GetHostInfo lists them")
            return
        try:
            call.tool.validate(call.request.arguments)
        except ArgumentsError as error:
            call.refusal = ("invalid-arguments", f"{error.field or '/'}: {error}")

    async def _up_to_precondition(self, call: _Call) -> Facts:
        try:
            await self._enter(call)
            before = await self._observer.look()
            facts = self._facts(call, before)
            await self._account_for_past(facts)
        except BaseException:
            await self._ledger.abandon(call.row.execution_id)
            raise
        self._decide(call, facts)
        return facts

    async def _enter(self, call: _Call) -> None:
        """Wait for the workspace. A deadline that passes here means that nothing ran."""
        call.ticket = self._lock.enter(exclusive=call.refusal is None and self._is_exclusive(call))
        await self._granted(call.ticket, lambda: call.live.queue_deadline, call.live.cancelled)

    def _is_exclusive(self, call: _Call) -> bool:
        if call.tool is None or call.request.observed:
            return True
        registered, declared = call.tool.side_effects, call.request.side_effects
        if not registered.read_only or registered.exclusive:
            return True
        return declared is not None and (declared.exclusive or not declared.read_only)

    async def _granted(
        self, ticket: Ticket, deadline: Callable[[], float | None], cancelled: asyncio.Event | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        given_up = asyncio.ensure_future((cancelled or asyncio.Event()).wait())
        try:
            while not ticket.granted.done():
                until = deadline()
                if given_up.done() or (until is not None and until <= loop.time()):
                    raise QueueTimeoutError("gave up waiting for the workspace; nothing ran, the key is free")
                # The deadline may move while we wait, when further callers join.
                pause = 1.0 if until is None else min(1.0, until - loop.time())
                await asyncio.wait(
                    {ticket.granted, given_up}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            given_up.cancel()

    def _facts(self, call: _Call, before: View) -> Facts:
        request = call.request
        observed = request.observed
        return Facts(
            request=request,
            arguments_digest=request.arguments_digest,
            execution_id=call.row.execution_id,
            key=call.row.idempotency_key,
            attempt=call.row.attempt,
            mode="observed" if observed else "executed",
            isolation="none" if observed else self._isolation_of(call.tool),
            before=before,
            after=before,
            after_policy_digest=before.policy.digest,
            read_only=not observed and call.tool is not None and call.tool.side_effects.read_only,
            protected=self._settings.protected_paths,
            include_arguments=self._settings.include_arguments,
        )

    def _isolation_of(self, tool: Tool | None) -> str:
        # The host's own file tools start no process: there is nothing to isolate.
        return self._isolation.kind if tool is None or not tool.runs_in_host else "host"

    async def _account_for_past(self, facts: Facts) -> None:
        """Find what changed since the previous receipt, under that receipt's rules."""
        state = (await self._ledger.head()).state
        if state is None:
            return
        facts.last_tree = await self._ledger.load_tree(state.tree_digest)
        if state.policy_digest != facts.before.policy.digest:
            policy = IgnorePolicy.from_bytes(state.policy_rules)
            facts.last_view = await self._observer.look(policy=policy)

    def _decide(self, call: _Call, facts: Facts) -> None:
        """Refuse what may not run; predict what may."""
        wanted = call.request.precondition
        facts.differences = precondition_differences(wanted, facts.before)
        problem = precondition_problem(wanted, facts.before)
        facts.precondition_failed = bool(problem or facts.differences)
        if call.refusal is None and facts.precondition_failed:
            call.refusal = ("precondition-unmet", problem or "a path is not in the expected state")
        if call.refusal is None and call.tool is not None and not call.request.observed:
            try:
                facts.predicted = call.tool.predict(call.request.arguments, self._tool_view(facts.before))
            except ArgumentsError as error:
                call.refusal = ("invalid-arguments", f"{error.field or '/'}: {error}")
        if call.refusal is not None:
            facts.outcome = "refused"
            facts.reason = ": ".join(call.refusal)

    def _tool_view(self, before: View) -> TreeView:
        return TreeView(self._observer.root, before.scan.tree, before.policy.is_ignored)

    async def _mark_in_flight(self, call: _Call, facts: Facts) -> None:
        facts.started_ns = self._clock.wall_ns()
        call.started_monotonic_ns = self._clock.monotonic_ns()
        predicted = b"" if facts.predicted is None else b"predicted"
        record = InFlight(facts.started_ns, facts.before.state, str(facts.before.scan.level), predicted)
        try:
            await self._ledger.mark_in_flight(call.row.execution_id, record, facts.before.tree)
        except BaseException:
            await self._ledger.abandon(call.row.execution_id)
            raise
        facts.ran = True
        call.live.accept(Accepted(call.row.execution_id, call.row.idempotency_key, facts.before.report()))

    def _context(self, call: _Call, tool: Tool, facts: Facts) -> ToolContext:
        return ToolContext(
            root=self._observer.root,
            environment=self._settings.environment,
            isolation=self._isolation,
            timeout_s=call.request.timeout_s or tool.default_timeout_s,
            on_output=call.live.output,
            cancelled=call.live.cancelled,
            view=self._tool_view(facts.before),
            execution_id=call.row.execution_id,
        )

    async def _scan_after(self, call: _Call, facts: Facts) -> None:
        """See what came of it, under the rules that were in force before."""
        facts.after = None
        try:
            facts.after = await self._observer.look(policy=facts.before.policy)
            facts.after_policy_digest = (await self._observer.policy_now()).digest
        except RootReplacedError:
            facts.outcome, facts.reason = "inDoubt", "root-replaced"
            facts.violations.append(form.PolicyViolation("", "root-replaced"))
            self.root_replaced.set()
        except WorkspaceError as error:
            facts.after_policy_digest = None
            self._cannot_see(facts, error)
        facts.finished_ns = self._clock.wall_ns()
        facts.duration_ns = self._clock.monotonic_ns() - call.started_monotonic_ns
        if facts.result is not None and facts.result.survivors:
            facts.outcome, facts.reason = "inDoubt", "processes of the tool could not be ended"

    def _cannot_see(self, facts: Facts, error: WorkspaceError) -> None:
        if facts.after is None:
            facts.outcome, facts.reason = "inDoubt", f"the workspace cannot be observed: {error}"
        else:
            # The tree was seen under the old rules; only the new rules are unreadable.
            facts.violations.append(form.PolicyViolation(error.path_text, "ignore-rules-unreadable"))


@dataclass(frozen=True, slots=True)
class _Joined:
    """A call that somebody else started."""

    live: LiveExecution


def _stored_request(request: CallRequest) -> bytes:
    """Return what settling after a crash needs of a request. Argument text is not kept: it may hold secrets."""
    return canonical_json(
        {
            "argumentsDigest": request.arguments_digest,
            "challenge": request.call.challenge,
            "observed": request.observed,
        }
    )

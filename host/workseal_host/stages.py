"""What each stage of an execution does. In which order they run, :mod:`.pipeline` alone knows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from workseal.receipt import statement as form
from workseal_host.coordination.calls import Call
from workseal_host.coordination.live import Accepted
from workseal_host.coordination.remains import boot_id
from workseal_host.errors import (
    ArgumentsError,
    HostError,
    IsolationError,
    RootReplacedError,
    WorkspaceError,
)
from workseal_host.evidence.conditions import check_precondition
from workseal_host.evidence.facts import Facts
from workseal_host.evidence.in_flight import in_flight_record
from workseal_host.execution.isolation import Isolation
from workseal_host.execution.output import HEAD_BYTES, TAIL_BYTES
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.tool import Prediction, Tool, ToolContext
from workseal_host.execution.view import TreeView
from workseal_host.ledger.model import ChainHead, Ledger
from workseal_host.observing import Observer, View
from workseal_host.workspace.ignore import IgnorePolicy

log = structlog.get_logger("workseal.stages")

MAX_QUEUE = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """How the pipeline treats calls.

    Attributes:
        protected_paths: globs of paths that no tool should change.
        include_arguments: whether receipts carry the text of arguments.
        environment: environment of tools.
        max_queue: how many calls may wait for the workspace.
        head_bytes: how many bytes are kept of the start of each output stream.
        tail_bytes: how many bytes are kept of its end.
    """

    protected_paths: tuple[str, ...]
    include_arguments: bool
    environment: Mapping[str, str]
    max_queue: int = MAX_QUEUE
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = TAIL_BYTES


@dataclass(frozen=True, slots=True)
class Clock:
    """Where times come from: wall clock and monotonic clock, both in ns."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns


class Stages:
    """The stages of one execution, on one workspace."""

    def __init__(
        self,
        *,
        observer: Observer,
        registry: ToolRegistry,
        isolation: Isolation,
        ledger: Ledger,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._observer = observer
        self._registry = registry
        self._isolation = isolation
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._started: dict[str, int] = {}
        self.root_replaced = asyncio.Event()

    def validate(self, call: Call) -> None:
        """Find the tool; note why it may not run, where the tool itself or its arguments forbid it."""
        try:
            call.tool = self._registry.get(call.request.tool)
        except ArgumentsError:
            call.tool = None
        # Of an observed call only the framework knows the tool: any name and arguments are its claim.
        if call.request.observed:
            return
        if call.tool is None:
            call.refusal = ("unknown-tool", "no tool of that name is registered; GetHostInfo lists them")
            return
        try:
            call.tool.validate(call.request.arguments)
        except ArgumentsError as error:
            call.refusal = ("invalid-arguments", f"{error.field or '/'}: {error}")

    def is_exclusive(self, call: Call) -> bool:
        """Tell whether a call must be alone: the stricter of the registry and the caller's declaration."""
        if call.request.observed:
            return True
        if call.refusal is not None or call.tool is None:
            return False
        registered, declared = call.tool.side_effects, call.request.side_effects
        if not registered.read_only or registered.exclusive:
            return True
        return declared is not None and (declared.exclusive or not declared.read_only)

    async def look_before(self, call: Call) -> bool:
        """See the workspace as it is before the call.

        Returns:
            Whether the ignore rules are others than those of the newest receipt.

        Raises:
            WorkspaceError: it cannot be observed, so nothing may run.
        """
        # The head first: what is sealed from here on may have seen more than this scan.
        head = await self._ledger.head()
        before = await self.look()
        call.facts = self._facts(call, before, head)
        state = head.state
        return (
            state is not None
            and state.scheme == before.scheme
            and state.policy_digest != before.policy.digest
        )

    async def bridge(self, facts: Facts) -> None:
        """See the workspace once more, under the rules of the newest receipt."""
        state = (await self._ledger.head()).state
        if state is not None:
            facts.bridge = await self.look(policy=IgnorePolicy.from_bytes(state.policy_rules))

    async def look(self, *, policy: IgnorePolicy | None = None) -> View:
        """Scan the workspace; note when its root is another one.

        Raises:
            WorkspaceError: it cannot be observed.
        """
        try:
            return await self._observer.look(policy=policy)
        except RootReplacedError:
            self.root_replaced.set()
            raise

    def _facts(self, call: Call, before: View, head: ChainHead) -> Facts:
        request, tool = call.request, call.tool
        declared = request.side_effects
        return Facts(
            request=request,
            arguments_digest=request.arguments_digest,
            execution_id=call.row.execution_id,
            key=call.row.idempotency_key,
            attempt=call.row.attempt,
            mode=call.row.mode,
            isolation="none" if request.observed else self._isolation_of(tool),
            before=before,
            after=before,
            after_policy_digest=before.policy.digest,
            state_sequence=head.state_sequence,
            read_only=bool(
                (tool is not None and not request.observed and tool.side_effects.read_only)
                or (declared is not None and declared.read_only)
            ),
            protected=self._settings.protected_paths,
            include_arguments=self._settings.include_arguments,
        )

    def _isolation_of(self, tool: Tool | None) -> str:
        # The host's own file tools start no process: there is nothing to isolate.
        return self._isolation.kind if tool is None or not tool.runs_in_host else "host"

    async def decide(self, call: Call, facts: Facts) -> None:
        """Refuse what may not run; let the tool predict what it would do."""
        facts.precondition, problem = check_precondition(call.request.precondition, facts.before)
        if call.refusal is None and problem:
            call.refusal = ("precondition-unmet", problem)
        if call.refusal is None and call.tool is not None and not call.request.observed:
            await self._predict(call, call.tool, facts)
        if call.refusal is not None:
            facts.outcome = "refused"
            facts.reason = ": ".join(call.refusal)

    async def _predict(self, call: Call, tool: Tool, facts: Facts) -> None:
        arguments, view = call.request.arguments, self._tool_view(facts)

        def predict() -> Prediction | None:
            return tool.predict(arguments, view)

        try:
            facts.predicted = await asyncio.to_thread(predict)
        except ArgumentsError as error:
            call.refusal = ("invalid-arguments", f"{error.field or '/'}: {error}")
        if facts.predicted == [] and tool.side_effects.read_only and not tool.runs_in_host:
            # That a foreign program changes nothing is its promise, not the host's knowledge:
            # credited with nothing, it could never be seen to break it.
            facts.predicted = None

    def _tool_view(self, facts: Facts) -> TreeView:
        return TreeView(self._observer.root, facts.before.scan.tree, facts.before.policy.is_ignored)

    async def mark_in_flight(self, call: Call, facts: Facts) -> None:
        """Write down, durably, all that settling after a crash needs; then tell that the call begins."""
        facts.started_ns = self._clock.wall_ns()
        self._started[facts.execution_id] = self._clock.monotonic_ns()
        record = in_flight_record(facts, boot_id=boot_id())
        trees = [facts.before.tree, *([facts.bridge.tree] if facts.bridge else [])]
        await self._ledger.mark_in_flight(call.row.execution_id, record, trees)
        facts.ran = True
        call.live.accept(Accepted(call.row.execution_id, call.row.idempotency_key, facts.before.report()))

    async def execute(self, call: Call, facts: Facts) -> None:
        """Run the tool to its end."""
        if call.tool is None:
            facts.doubt("the tool vanished")
            return
        try:
            facts.result = await call.tool.run(call.request.arguments, self._context(call, call.tool, facts))
        except (ArgumentsError, IsolationError) as error:
            # Of these two a tool promises that nothing ran: the workspace is as it was, the key free again.
            log.warning("tool was not started", execution_id=facts.execution_id, error=str(error))
            facts.not_started(f"not-started: {error}")
            self._started.pop(facts.execution_id, None)
        except (HostError, OSError) as error:
            # It may have got anywhere before it failed: say so, and let the after-scan show what is there.
            log.warning("tool failed to run", execution_id=facts.execution_id, error=str(error))
            facts.doubt(f"the tool could not be run to its end: {error}")

    def _context(self, call: Call, tool: Tool, facts: Facts) -> ToolContext:
        return ToolContext(
            root=self._observer.root,
            environment=self._settings.environment,
            isolation=self._isolation,
            timeout_s=call.request.timeout_s or tool.default_timeout_s,
            on_output=call.live.output,
            cancelled=call.live.cancelled,
            view=self._tool_view(facts),
            head_bytes=self._settings.head_bytes,
            tail_bytes=self._settings.tail_bytes,
            execution_id=facts.execution_id,
        )

    async def look_after(self, facts: Facts) -> None:
        """See what came of it, under the rules that were in force before."""
        facts.after, facts.after_policy_digest = None, None
        try:
            facts.after = await self.look(policy=facts.before.policy)
            facts.after_policy_digest = (await self._observer.policy_after(facts.after)).digest
        except RootReplacedError:
            # Also when it happened after the scan: what was scanned is not the workspace any more.
            facts.after = None
            facts.doubt("root-replaced")
            facts.violations.append(form.PolicyViolation("", "root-replaced"))
            self.root_replaced.set()
        except WorkspaceError as error:
            self._cannot_see(facts, error)
        facts.finished_ns = self._clock.wall_ns()
        begun = self._started.pop(facts.execution_id, self._clock.monotonic_ns())
        facts.duration_ns = self._clock.monotonic_ns() - begun
        if facts.result is not None and facts.result.survivors:
            facts.doubt("processes of the tool could not be ended")

    @staticmethod
    def _cannot_see(facts: Facts, error: WorkspaceError) -> None:
        if facts.after is None:
            facts.doubt(f"the workspace cannot be observed: {error}")
        else:
            # The tree was seen under the old rules; only the new rules are unreadable.
            facts.violations.append(form.PolicyViolation(error.path_text, "ignore-rules-unreadable"))

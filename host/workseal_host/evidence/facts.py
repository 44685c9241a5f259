"""What was seen of one call, filled in stage by stage. Holds, and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workseal.receipt import statement as form
from workseal_host.execution.tool import PredictedEffect, ToolResult
from workseal_host.observing import View
from workseal_host.requests import CallRequest
from workseal_host.workspace.model import Directory


@dataclass(slots=True)
class Facts:
    """All that was seen of one call.

    Attributes:
        request: what was asked for.
        arguments_digest: hex SHA-256 of its canonical arguments.
        execution_id: its execution.
        key: the idempotency key it holds.
        attempt: how often this key was tried, from 1.
        mode: `executed` or `observed`.
        isolation: how the tool was isolated.
        before: the workspace before.
        state_sequence: sequence of the newest call's receipt when ``before`` was seen; 0 for none.
        bridge: the workspace before, under the rules of that receipt; None where those are the same.
        outcome: what the host decided.
        reason: why, in one word or phrase; empty where there is nothing to say.
        after: the workspace after; None where it cannot be seen.
        after_policy_digest: hex digest of the ignore rules at the end; None where they cannot be read.
        predicted: what the tool itself said it would do; None where it cannot say.
        read_only: whether the tool or the caller declared that nothing changes.
        protected: globs of paths that no tool should change.
        result: what the tool gave back; None where nothing ran.
        ran: whether the tool may have run.
        started_ns: wall clock at the start, in ns.
        finished_ns: wall clock at the end, in ns.
        duration_ns: monotonic time between the two.
        precondition: whether what had to hold did.
        violations: rules that were broken, beyond those found in the changes.
        include_arguments: whether the receipt carries the text of the arguments.
    """

    request: CallRequest
    arguments_digest: str
    execution_id: str
    key: str
    attempt: int
    mode: str
    isolation: str
    before: View
    state_sequence: int = 0
    bridge: View | None = None
    outcome: str = "completed"
    reason: str = ""
    after: View | None = None
    after_policy_digest: str | None = None
    predicted: Sequence[PredictedEffect] | None = None
    read_only: bool = False
    protected: Sequence[str] = ()
    result: ToolResult | None = None
    ran: bool = False
    started_ns: int = 0
    finished_ns: int = 0
    duration_ns: int = 0
    precondition: form.Precondition = field(default_factory=form.Precondition)
    violations: list[form.PolicyViolation] = field(default_factory=list)
    include_arguments: bool = False

    @property
    def was_marked(self) -> bool:
        """Whether the ledger may hold it as in flight: then only a receipt can close it."""
        return self.started_ns > 0

    def doubt(self, reason: str) -> None:
        """Make it an outcome that cannot be told; further reasons are added."""
        known = self.reason if self.outcome == "inDoubt" else ""
        self.outcome, self.reason = "inDoubt", f"{known}; {reason}" if known else reason

    def not_started(self, reason: str) -> None:
        """Make it a refusal: it was marked in flight, but the tool never began."""
        self.outcome, self.reason = "refused", reason
        self.ran, self.predicted = False, None
        self.finished_ns = self.started_ns

    def drop_words(self) -> None:
        """Drop what the tool gave back and was said of it; what changed stays."""
        self.result, self.predicted, self.violations = None, None, []
        self.include_arguments = False

    def drop_changes(self) -> None:
        """Drop what was seen after the call as well."""
        self.after, self.after_policy_digest = None, None


@dataclass(frozen=True, slots=True)
class Past:
    """What the chain says of the workspace when a receipt is about to be added.

    Attributes:
        tree: the workspace after the newest call; None where it is not known under the same scheme.
        sequence: sequence of that call's receipt; 0 where there is none.
    """

    tree: Directory | None
    sequence: int

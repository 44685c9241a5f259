"""From what was seen of one call to the predicate that says so. Pure.

Everything that a receipt states is decided here, from facts that the pipeline
gathered: which changes are the tool's and which are somebody else's, whether
predicted effects came true, which rules were broken.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from workseal.canonical import sha256_hex
from workseal.paths import escape_path
from workseal.receipt import statement as form
from workseal_host.execution.output import CapturedStream
from workseal_host.execution.tool import PredictedEffect, ToolResult
from workseal_host.observing import View
from workseal_host.requests import CallRequest, PathExpectation, Precondition
from workseal_host.workspace.diff import Change, EntryState, diff
from workseal_host.workspace.model import Directory, EntryType, Node, lookup
from workseal_host.workspace.scheme import DigestScheme

MAX_LISTED_VIOLATIONS = 1000


@dataclass(slots=True)
class Facts:
    """All that was seen of one call, filled in stage by stage.

    Attributes:
        request: what was asked for.
        arguments_digest: hex SHA-256 of its canonical arguments.
        execution_id: its execution.
        key: the idempotency key it holds.
        attempt: how often this key was tried, from 1.
        mode: `executed` or `observed`.
        isolation: how the tool was isolated.
        outcome: what the host decided.
        reason: why, in one word or phrase; empty where there is nothing to say.
        before: the workspace before.
        after: the workspace after; None where it cannot be seen any more.
        after_policy_digest: hex digest of the ignore rules at the end; None where they cannot be read.
        last_tree: the workspace after the previous receipt, under ``last_view``'s rules; None where unknown.
        last_view: the workspace before, under the previous receipt's rules; None where those are the same.
        last_policy_digest: digest of those rules.
        predicted: what the tool itself said it would do; None where it cannot say.
        read_only: whether the tool is declared to change nothing.
        protected: globs of paths that no tool should change.
        result: what the tool gave back; None where nothing ran.
        started_ns: wall clock at the start, in ns.
        finished_ns: wall clock at the end, in ns.
        duration_ns: monotonic time between the two.
        precondition_failed: whether a precondition did not hold.
        differences: the paths of which it did not hold.
        violations: rules that were broken, beyond those found in the changes.
    """

    request: CallRequest
    arguments_digest: str
    execution_id: str
    key: str
    attempt: int
    mode: str
    isolation: str
    before: View
    outcome: str = "completed"
    reason: str = ""
    after: View | None = None
    after_policy_digest: str | None = None
    last_tree: Directory | None = None
    last_view: View | None = None
    predicted: Sequence[PredictedEffect] | None = None
    read_only: bool = False
    protected: Sequence[str] = ()
    result: ToolResult | None = None
    ran: bool = False
    started_ns: int = 0
    finished_ns: int = 0
    duration_ns: int = 0
    precondition_failed: bool = False
    differences: list[form.Difference] = field(default_factory=list)
    violations: list[form.PolicyViolation] = field(default_factory=list)
    include_arguments: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one call, ascribed."""

    own: list[Change]
    outside: list[Change]
    outside_known: bool


def ascribe(facts: Facts) -> Changes:
    """Split what changed into the tool's own changes and everybody else's.

    A tool that predicts its effects is credited with its own paths only; any
    other with the whole interval. What changed between the previous receipt and
    this call is nobody's.
    """
    interval = _diff(facts.before.tree, facts.after.tree, facts.before.scheme) if facts.after else []
    between = _between(facts)
    if facts.predicted is None:
        return Changes(interval, between or [], between is not None)
    named = {effect.path for effect in facts.predicted}
    own = [change for change in interval if change.path in named]
    others = [change for change in interval if change.path not in named]
    return Changes(own, _merged(between or [], others), between is not None or bool(others))


def _between(facts: Facts) -> list[Change] | None:
    if facts.last_tree is None:
        return None
    now = facts.last_view or facts.before
    return _diff(facts.last_tree, now.tree, now.scheme)


def _diff(before: Directory, after: Directory, scheme: DigestScheme) -> list[Change]:
    return diff(before, after, list_directories=scheme is not DigestScheme.NONOKA_1)


def _merged(first: Iterable[Change], second: Iterable[Change]) -> list[Change]:
    by_path: dict[bytes, Change] = {}
    for change in (*first, *second):
        earlier = by_path.get(change.path)
        if earlier is None:
            by_path[change.path] = change
            continue
        kind = _merged_kind(earlier, change)
        by_path[change.path] = Change(kind, change.path, earlier.before, change.after)
    return sorted(by_path.values(), key=lambda change: change.path)


def _merged_kind(earlier: Change, later: Change) -> Any:
    if earlier.before is None:
        return "created"
    return "deleted" if later.after is None else "modified"


def precondition_differences(precondition: Precondition, view: View) -> list[form.Difference]:
    """Return the paths whose expected state does not hold, sorted by raw path."""
    found: list[form.Difference] = []
    for expected in sorted(precondition.paths, key=lambda item: item.path):
        state = _state(lookup(view.tree, expected.path))
        if not _holds(expected, state):
            found.append(form.Difference(escape_path(expected.path), _expected(expected), _entry(state)))
    return found


def precondition_problem(precondition: Precondition, view: View) -> str:
    """Return why a precondition does not hold, leaving single paths aside; empty where it does."""
    if precondition.is_requested and not view.scan.settled:
        return "entries are unreadable or changing, so the workspace cannot be compared"
    if precondition.workspace_digest and precondition.workspace_digest != view.digest:
        return "the workspace does not have the expected digest"
    return ""


def _holds(expected: PathExpectation, state: EntryState | None) -> bool:
    if state is None or expected.absent:
        return expected.absent and state is None
    if expected.type is not None and state.type is not expected.type:
        return False
    return not expected.digest or state.digest.hex() == expected.digest


def _expected(expected: PathExpectation) -> form.EntryState | None:
    if expected.type is None or not expected.digest:
        return None
    return form.EntryState(form.EntryType(expected.type), expected.digest)


def _state(node: Node | None) -> EntryState | None:
    return None if node is None else EntryState(node.type, node.digest)


def _verification(facts: Facts) -> form.Verification:
    if not facts.ran or facts.predicted is None or facts.after is None:
        return form.Verification()
    failures = [
        form.Difference(escape_path(effect.path), _entry(effect.after), _entry(state))
        for effect in sorted(facts.predicted, key=lambda effect: effect.path)
        if not _came_true(effect, state := _state(lookup(facts.after.tree, effect.path)))
    ]
    if not failures:
        return form.Verification(form.VerificationStatus.PASSED, "predicted effects were read back")
    return form.Verification(
        form.VerificationStatus.FAILED,
        "predicted effects did not come true",
        tuple(failures[: form.MAX_DIFFERENCES]),
        complete=len(failures) <= form.MAX_DIFFERENCES,
    )


def _came_true(effect: PredictedEffect, state: EntryState | None) -> bool:
    if effect.after is None or state is None:
        return effect.after is None and state is None
    # The hash of a directory depends on everything in it; that it is one is what was predicted.
    if effect.after.type is EntryType.DIRECTORY:
        return state.type is EntryType.DIRECTORY
    return effect.after == state


def _violations(facts: Facts, own: Sequence[Change]) -> tuple[form.PolicyViolation, ...]:
    found = list(facts.violations)
    for change in own:
        path = escape_path(change.path)
        if facts.read_only:
            found.append(form.PolicyViolation(path, "read-only"))
        found.extend(
            form.PolicyViolation(path, f"protected:{glob}")
            for glob in facts.protected
            if matches_glob(change.path, glob)
        )
    return tuple(found[:MAX_LISTED_VIOLATIONS])


def matches_glob(path: bytes, glob: str) -> bool:
    """Tell whether a path lies under a protected glob: without a slash by name at any depth, else from the root."""
    text = path.decode("latin-1")
    pattern = glob.encode().decode("latin-1")
    if "/" not in pattern:
        return fnmatch.fnmatchcase(text.rpartition("/")[2], pattern)
    if pattern.endswith("/**"):
        return text == pattern[:-3] or text.startswith(pattern[:-2])
    return fnmatch.fnmatchcase(text, pattern)


def _time(nanoseconds: int) -> str:
    return form.format_time(datetime.fromtimestamp(nanoseconds // 1000 / 1_000_000, tz=UTC))


def _entry(state: EntryState | None) -> form.EntryState | None:
    return None if state is None else form.EntryState(form.EntryType(state.type), state.digest.hex())


def changed_entries(changes: Sequence[Change]) -> list[form.ChangedEntry]:
    """Return changes in the receipt's own form."""
    return [
        form.ChangedEntry(
            escape_path(change.path),
            form.ChangeKind(change.kind),
            _entry(change.before),
            _entry(change.after),
        )
        for change in changes
    ]


def _outside(changes: Changes) -> form.OutsideChanges | None:
    if not changes.outside_known:
        return None
    lists = []
    complete = True
    for kind in form.ChangeKind:
        paths, omitted = form.bound_paths(
            [escape_path(item.path) for item in changes.outside if item.kind == kind]
        )
        lists.append(paths)
        complete = complete and not omitted
    return form.OutsideChanges(*lists, complete=complete)


def _stream(stream: CapturedStream | None) -> form.CapturedStreamDigest | None:
    if stream is None:
        return None
    return form.CapturedStreamDigest(stream.digest.hex(), stream.total_bytes, stream.truncated)


def _execution(facts: Facts) -> form.Execution | None:
    if not facts.ran:
        return None
    result = facts.result
    return form.Execution(
        execution_id=facts.execution_id,
        mode=form.Mode(facts.mode),
        isolation=form.Isolation(facts.isolation),
        attribution=form.Attribution.INTERVAL if facts.predicted is None else form.Attribution.PREDICTED,
        started_on=_time(facts.started_ns),
        finished_on=_time(facts.finished_ns),
        duration_ns=facts.duration_ns,
        exit_code=result.exit_code if result else None,
        signal=result.signal if result else None,
        timed_out=bool(result and result.timed_out),
        cancelled=bool(result and result.cancelled),
        recovered=False,
        leftover_processes=result.leftover_processes if result else 0,
        stdout=_stream(result.stdout) if result else None,
        stderr=_stream(result.stderr) if result else None,
        result=form.ResultDigest(sha256_hex(result.result), len(result.result)) if result else None,
        survivors=int(bool(result and result.survivors)),
    )


def _workspace(facts: Facts, changes: Changes, summary: form.ChangeSummary, ids: Ids) -> form.Workspace:
    before, after = facts.before, facts.after
    scans = [view.scan for view in (before, after) if view is not None]
    unreadable, unreadable_omitted = _paths(path for scan in scans for path in scan.unreadable)
    unstable, unstable_omitted = _paths(path for scan in scans for path in scan.unstable)
    return form.Workspace(
        id=ids.workspace_id,
        root=ids.root,
        scheme=form.Scheme(before.scheme),
        scan_before=form.ScanLevel(before.scan.level),
        scan_after=form.ScanLevel(after.scan.level) if after else None,
        ignore_policy_before=before.policy.digest,
        ignore_policy_after=facts.after_policy_digest,
        before=before.digest,
        after=after.digest if after else None,
        created=summary.created,
        modified=summary.modified,
        deleted=summary.deleted,
        changes=summary.changes,
        unreadable=unreadable,
        unstable=unstable,
        outside_changes=_outside(changes),
        bridge=form.Bridge(facts.last_view.policy.digest, facts.last_view.digest)
        if facts.last_view
        else None,
        unreadable_omitted=unreadable_omitted,
        unstable_omitted=unstable_omitted,
    )


def _paths(paths: Iterable[bytes]) -> tuple[tuple[str, ...], int]:
    return form.bound_paths([escape_path(path) for path in sorted(set(paths))])


def _precondition(facts: Facts) -> form.Precondition:
    requested = facts.request.precondition
    if not requested.is_requested:
        return form.Precondition()
    unmet = facts.precondition_failed
    return form.Precondition(
        form.PreconditionStatus.UNMET if unmet else form.PreconditionStatus.MET,
        requested.workspace_digest or None,
        tuple(facts.differences[: form.MAX_DIFFERENCES]),
        complete=len(facts.differences) <= form.MAX_DIFFERENCES,
    )


def _call(facts: Facts) -> form.Call:
    request = facts.request
    return form.Call(
        session_id=request.call.session_id,
        tool_call_id=request.call.tool_call_id,
        tool=request.tool,
        arguments_digest=facts.arguments_digest,
        idempotency_key=facts.key,
        attempt=facts.attempt,
        challenge=request.call.challenge,
        arguments=request.arguments if facts.include_arguments else None,
    )


@dataclass(frozen=True, slots=True)
class Ids:
    """Who speaks, and of which workspace."""

    workspace_id: str
    root: str
    host_name: str
    host_version: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """A predicate that lacks only its place in the chain, and its full change list."""

    predicate: form.ToolExecutionPredicate
    change_lines: bytes


def assemble(facts: Facts, ids: Ids, chain: form.Chain, key_id: str, issued_ns: int) -> Assembled:
    """Build the predicate of one call.

    Args:
        facts: all that was seen.
        ids: who speaks, and of which workspace.
        chain: the place that the receipt takes.
        key_id: the key that will sign it.
        issued_ns: wall clock now, in ns.

    Returns:
        The predicate, and the full change list as JSON Lines.
    """
    changes = ascribe(facts)
    entries = changed_entries(changes.own)
    predicate = form.ToolExecutionPredicate(
        outcome=form.Outcome(facts.outcome),
        reason=facts.reason[: form.MAX_REASON_CHARACTERS],
        call=_call(facts),
        execution=_execution(facts),
        workspace=_workspace(facts, changes, form.summarize_changes(entries), ids),
        precondition=_precondition(facts),
        verification=_verification(facts),
        policy=form.Policy(_violations(facts, changes.own)),
        chain=chain,
        host=form.HostIdentity(ids.host_name, ids.host_version, key_id),
        issued_on=_time(issued_ns),
    )
    return Assembled(predicate, b"".join(form.encode_change_line(entry) for entry in entries))

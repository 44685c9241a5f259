"""From what was seen of one call to the predicate that says so. Pure.

Everything that a receipt states is decided in this layer, from facts that the
pipeline gathered: which changes are the tool's and which are somebody else's
(:mod:`.evidence.attribution`), whether conditions held (:mod:`.evidence.conditions`),
which rules were broken (:mod:`.evidence.policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from workseal.canonical import sha256_hex
from workseal.paths import escape_path
from workseal.receipt import statement as form
from workseal_host.evidence.attribution import Changes, ascribe
from workseal_host.evidence.conditions import entry_state, verify_prediction
from workseal_host.evidence.facts import Facts, Past
from workseal_host.evidence.policy import violations
from workseal_host.execution.output import CapturedStream
from workseal_host.workspace.diff import Change


def _time(nanoseconds: int) -> str:
    return form.format_time(datetime.fromtimestamp(nanoseconds // 1000 / 1_000_000, tz=UTC))


def changed_entries(changes: Sequence[Change]) -> list[form.ChangedEntry]:
    """Return changes in the receipt's own form."""
    return [
        form.ChangedEntry(
            escape_path(change.path),
            form.ChangeKind(change.kind),
            entry_state(change.before),
            entry_state(change.after),
        )
        for change in changes
    ]


def _outside(changes: Changes) -> form.OutsideChanges | None:
    if not changes.outside_known:
        return None
    lists: list[tuple[str, ...]] = []
    complete = True
    for kind in form.ChangeKind:
        paths, omitted = form.bound_paths(
            [escape_path(item.path) for item in changes.outside if item.kind == kind]
        )
        lists.append(paths)
        complete = complete and not omitted
    created, modified, deleted = lists
    return form.OutsideChanges(created, modified, deleted, complete=complete)


def _stream(stream: CapturedStream | None) -> form.CapturedStreamDigest | None:
    if stream is None:
        return None
    return form.CapturedStreamDigest(stream.digest.hex(), stream.total_bytes, stream.truncated)


def _execution(facts: Facts) -> form.Execution | None:
    if not facts.ran:
        return None
    result = facts.result
    # Of a tool that somebody else ran the host saw no output: an empty stream would be a guess.
    heard = None if facts.mode == form.Mode.OBSERVED else result
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
        stdout=_stream(heard.stdout) if heard else None,
        stderr=_stream(heard.stderr) if heard else None,
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
        bridge=form.Bridge(facts.bridge.policy.digest, facts.bridge.digest) if facts.bridge else None,
        unreadable_omitted=unreadable_omitted,
        unstable_omitted=unstable_omitted,
    )


def _paths(paths: Iterable[bytes]) -> tuple[tuple[str, ...], int]:
    return form.bound_paths([escape_path(path) for path in sorted(set(paths))])


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


def assemble(
    facts: Facts, past: Past, ids: Ids, *, chain: form.Chain, key_id: str, issued_ns: int
) -> Assembled:
    """Build the predicate of one call.

    Args:
        facts: all that was seen.
        past: what the chain says of the workspace.
        ids: who speaks, and of which workspace.
        chain: the place that the receipt takes.
        key_id: the key that will sign it.
        issued_ns: wall clock now, in ns.

    Returns:
        The predicate, and the full change list as JSON Lines.
    """
    changes = ascribe(facts, past)
    entries = changed_entries(changes.own)
    predicate = form.ToolExecutionPredicate(
        outcome=form.Outcome(facts.outcome),
        reason=facts.reason[: form.MAX_REASON_CHARACTERS],
        call=_call(facts),
        execution=_execution(facts),
        workspace=_workspace(facts, changes, form.summarize_changes(entries), ids),
        precondition=facts.precondition,
        verification=verify_prediction(facts),
        policy=form.Policy(violations(facts, changes.own)),
        chain=chain,
        host=form.HostIdentity(ids.host_name, ids.host_version, key_id),
        issued_on=_time(issued_ns),
    )
    return Assembled(predicate, b"".join(form.encode_change_line(entry) for entry in entries))

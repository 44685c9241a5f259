"""What a predicate must not contradict in itself.

Two readers use this: reading a statement (everything but the changes), and the
verifier's check of the changes against the digests.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from workseal.paths import unescape_path
from workseal.receipt.changes import encode_change_line, entry_problem, sort_changes
from workseal.receipt.errors import PublicKeyError
from workseal.receipt.form import MAX_LISTED_CHANGES
from workseal.receipt.keys import PublicKey
from workseal.receipt.predicate import (
    ChangedEntry,
    KeyRotationPredicate,
    Outcome,
    Predicate,
    ToolExecutionPredicate,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the statement is about: a name and a SHA-256 in hex."""

    name: str
    digest: str


def subject_of(predicate: Predicate) -> Subject:
    """Return the subject of a predicate.

    A call: ``workspace`` with the digest after it; where the state after it is not
    known, ``workspace-before`` with the digest before it, so that nobody takes one
    for the other. A rotation: ``key`` with the fingerprint of the new key.

    Raises:
        PublicKeyError: a rotation's new key cannot be used.
    """
    if isinstance(predicate, KeyRotationPredicate):
        return Subject("key", PublicKey.from_pem(predicate.new_key.public).fingerprint)
    if predicate.workspace.after is None:
        return Subject("workspace-before", predicate.workspace.before)
    return Subject("workspace", predicate.workspace.after)


def contradiction(predicate: Predicate) -> str | None:
    """Return what in a predicate contradicts itself, its changes left aside, or None."""
    chain = predicate.chain
    if (chain.sequence == 1) != (chain.previous is None):
        return "chain: the first entry, and no other, has no previous one"
    if isinstance(predicate, KeyRotationPredicate):
        return _rotation_contradiction(predicate)
    return _call_contradiction(predicate)


def _call_contradiction(predicate: ToolExecutionPredicate) -> str | None:
    workspace, ran = predicate.workspace, predicate.execution is not None
    if predicate.outcome is Outcome.COMPLETED and (
        predicate.execution is None or predicate.execution.result is None
    ):
        return "outcome: completed, without an execution and its result"
    if predicate.outcome is Outcome.REFUSED and (ran or workspace.before != workspace.after):
        return "outcome: refused, although something ran or changed"
    if (workspace.after is None) != (workspace.scan_after is None):
        return "workspace: a scan after the call without its digest, or the reverse"
    if any(effect.changed != (effect.before != effect.after) for effect in predicate.effects):
        return "effects: changed does not say whether the digests differ"
    return None


def _rotation_contradiction(predicate: KeyRotationPredicate) -> str | None:
    try:
        key = PublicKey.from_pem(predicate.new_key.public)
    except PublicKeyError as error:
        return f"newKey: {error}"
    named = (predicate.new_key.key_id, predicate.new_key.key_type, predicate.new_key.scheme)
    if named != (key.key_id, key.key_type, key.scheme) or predicate.new_key.public != key.pem:
        return "newKey: its id, type, scheme or PEM are not those of the key"
    if predicate.old_key_id == key.key_id or predicate.old_key_id != predicate.host.key_id:
        return "oldKeyId: is the new key, or not the one that signs"
    return None


def inconsistency(predicate: ToolExecutionPredicate) -> str | None:
    """Return how a receipt's changes contradict each other or its digests, or None."""
    workspace = predicate.workspace
    lists = (workspace.created, workspace.modified, workspace.deleted)
    counts = (workspace.changes.created, workspace.changes.modified, workspace.changes.deleted)
    entries = [entry for part in lists for entry in part]
    for entry in entries:
        if (problem := entry_problem(entry)) is not None:
            return f"{entry.path}: {problem}"
    for part in lists:
        raw = [unescape_path(entry.path) for entry in part]
        if any(left >= right for left, right in itertools.pairwise(raw)):
            return "a list is not sorted by raw path bytes, or names a path twice"
    if len({entry.path for entry in entries}) != len(entries):
        return "a path is in two lists"
    if len(entries) > MAX_LISTED_CHANGES or any(
        len(part) > count for part, count in zip(lists, counts, strict=True)
    ):
        return "more entries are listed than are counted or allowed"
    if workspace.changes.complete != (len(entries) == sum(counts)):
        return "the lists are not as complete as they say"
    return _digest_inconsistency(predicate, entries)


def _digest_inconsistency(predicate: ToolExecutionPredicate, entries: Sequence[ChangedEntry]) -> str | None:
    workspace = predicate.workspace
    if workspace.changes.complete:
        data = b"".join(encode_change_line(entry) for entry in sort_changes(entries))
        if hashlib.sha256(data).hexdigest() != workspace.changes.digest:
            return "the digest of the full list is not that of the listed entries"
    changed = workspace.changes.total > 0
    if workspace.after is None:
        return "changes are listed although no state after the call is known" if changed else None
    if changed and workspace.before == workspace.after:
        return "entries changed although the digests before and after are equal"
    explained = changed or bool(predicate.execution is not None and workspace.outside_changes)
    if workspace.before != workspace.after and not explained:
        return "the digests before and after differ although no entry changed"
    return None

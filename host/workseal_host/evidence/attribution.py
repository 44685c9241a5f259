"""Whose changes: the tool's own, or somebody else's. Pure.

A tool that predicts its effects is credited with its own paths only; any other
with the whole interval between the two scans. Changes between the newest receipt
and this call are nobody's.

Calls that only read may overlap. Then the newest receipt may have seen the
workspace *after* this call's before-scan, and "what changed between" would run
backwards. What differs is then listed in the direction in which it happened: it
was seen during this call, and is ascribed to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workseal_host.evidence.facts import Facts, Past
from workseal_host.workspace.diff import Change, ChangeKind, diff
from workseal_host.workspace.model import Directory
from workseal_host.workspace.scheme import DigestScheme


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one call, ascribed.

    Attributes:
        own: the call's.
        outside: everybody else's.
        outside_known: whether those could be told at all.
    """

    own: list[Change]
    outside: list[Change]
    outside_known: bool


def ascribe(facts: Facts, past: Past) -> Changes:
    """Split what changed into the call's own changes and everybody else's."""
    interval = _diff(facts.before.tree, facts.after.tree, facts.before.scheme) if facts.after else []
    apart = _apart(facts, past)
    if facts.predicted is None:
        return Changes(interval, apart or [], apart is not None)
    named = {effect.path for effect in facts.predicted}
    own = [change for change in interval if change.path in named]
    others = [change for change in interval if change.path not in named]
    return Changes(own, _merged(apart or [], others), apart is not None or bool(others))


def _apart(facts: Facts, past: Past) -> list[Change] | None:
    """Return what lies between the newest receipt's after-state and this call's before-state."""
    if past.tree is None:
        return None
    now = (facts.bridge or facts.before).tree
    if past.sequence > facts.state_sequence:
        return _diff(now, past.tree, facts.before.scheme)
    return _diff(past.tree, now, facts.before.scheme)


def _diff(before: Directory, after: Directory, scheme: DigestScheme) -> list[Change]:
    return diff(before, after, list_directories=scheme is not DigestScheme.NONOKA_1)


def _merged(first: Iterable[Change], second: Iterable[Change]) -> list[Change]:
    """Join two lists, each path once. None is dropped: what came and went also explains a before-digest."""
    by_path = {change.path: change for change in first}
    for change in second:
        earlier = by_path.get(change.path)
        by_path[change.path] = change if earlier is None else _joined(earlier, change)
    return sorted(by_path.values(), key=lambda change: change.path)


def _joined(earlier: Change, later: Change) -> Change:
    kind: ChangeKind = "modified"
    if later.after is None:
        kind = "deleted"
    elif earlier.before is None:
        kind = "created"
    return Change(kind, later.path, earlier.before, later.after)

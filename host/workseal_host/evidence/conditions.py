"""Preconditions before a call, predicted effects after it. Pure."""

from __future__ import annotations

from workseal.paths import escape_path
from workseal.receipt import statement as form
from workseal_host.evidence.facts import Facts
from workseal_host.execution.tool import PredictedEffect
from workseal_host.observing import View
from workseal_host.requests import PathExpectation, Precondition
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import EntryType, lookup


def entry_state(state: EntryState | None) -> form.EntryState | None:
    """Return a state in the receipt's own form."""
    return None if state is None else form.EntryState(form.EntryType(state.type), state.digest.hex())


def check_precondition(wanted: Precondition, view: View) -> tuple[form.Precondition, str]:
    """Compare the workspace with what must hold.

    Returns:
        What the receipt says of it, and why it does not hold; empty where it does.
    """
    if not wanted.is_requested:
        return form.Precondition(), ""
    differences = _differences(wanted, view)
    problem = _problem(wanted, view) or ("a path is not in the expected state" if differences else "")
    status = form.PreconditionStatus.UNMET if problem else form.PreconditionStatus.MET
    stated = form.Precondition(
        status,
        wanted.workspace_digest or None,
        tuple(differences[: form.MAX_DIFFERENCES]),
        complete=len(differences) <= form.MAX_DIFFERENCES,
    )
    return stated, problem


def _problem(wanted: Precondition, view: View) -> str:
    if not view.scan.settled:
        return "entries are unreadable or changing, so the workspace cannot be compared"
    if any(_is_hidden(expected.path, view) for expected in wanted.paths):
        return "a path is ignored in this workspace, so its state cannot be seen"
    if wanted.workspace_digest and wanted.workspace_digest != view.digest:
        return "the workspace does not have the expected digest"
    return ""


def _is_hidden(path: bytes, view: View) -> bool:
    """Tell whether something may be at a path although the tree has nothing there."""
    if lookup(view.tree, path) is not None:
        return False
    parts = path.split(b"/")
    above = (b"/".join(parts[:count]) for count in range(1, len(parts)))
    # Whether the last one is a directory nobody saw: a rule for directories alone may have hidden it.
    return any(view.policy.is_ignored(prefix, True) for prefix in above) or any(
        view.policy.is_ignored(path, is_dir) for is_dir in (True, False)
    )


def _differences(wanted: Precondition, view: View) -> list[form.Difference]:
    """Return the paths whose expected state does not hold, sorted by raw path."""
    found: list[form.Difference] = []
    for expected in sorted(wanted.paths, key=lambda item: item.path):
        # Not every scheme sees links or directories; something is there all the same.
        tree = view.scan.tree if expected.absent else view.tree
        state = EntryState.of(lookup(tree, expected.path))
        if not _holds(expected, state):
            found.append(form.Difference(escape_path(expected.path), _expected(expected), entry_state(state)))
    return found


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


def verify_prediction(facts: Facts) -> form.Verification:
    """Read the predicted effects back from the scan after the call."""
    if not facts.ran or facts.predicted is None or facts.after is None:
        return form.Verification()
    failures = [
        form.Difference(escape_path(effect.path), entry_state(effect.after), entry_state(state))
        for effect in sorted(facts.predicted, key=lambda effect: effect.path)
        if not _came_true(effect, state := EntryState.of(lookup(facts.after.tree, effect.path)))
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

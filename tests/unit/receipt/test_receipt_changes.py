"""Lists of changes: what is listed, counted and proved."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from unit.receipt.receipt_support import Ledger, created, deleted, digest, modified
from workseal.errors import NotVerifiedError
from workseal.paths import escape_path
from workseal.receipt.consistency import inconsistency
from workseal.receipt.envelope import MAX_ENVELOPE_BYTES
from workseal.receipt.errors import MalformedReceiptError, ReceiptFormError
from workseal.receipt.statement import (
    MAX_LISTED_CHANGES,
    NO_CHANGES,
    ChangedEntry,
    ChangeKind,
    EntryState,
    EntryType,
    OutsideChanges,
    bound_paths,
    encode_change_line,
    parse_change_lines,
    prove_changes,
    sort_changes,
    summarize_changes,
)

THREE = (created("a"), modified("b"), deleted("c"))
GRPC_DEFAULT_BYTES = 4 * 1024 * 1024


def full_list(entries: tuple[ChangedEntry, ...]) -> bytes:
    return b"".join(encode_change_line(entry) for entry in entries)


def test_a_line_is_canonical_json_and_a_newline() -> None:
    assert encode_change_line(created("a", "x")) == (
        b'{"after":{"digest":{"sha256":"%s"},"type":"file"},"kind":"created","path":"a"}\n'
        % hashlib.sha256(b"x").hexdigest().encode()
    )


def test_a_full_list_is_read_back() -> None:
    assert parse_change_lines(full_list(THREE)) == THREE


def test_nothing_is_the_empty_list() -> None:
    assert summarize_changes(()).changes == NO_CHANGES


def test_a_summary_counts_lists_and_digests() -> None:
    summary = summarize_changes(THREE)
    assert (summary.created, summary.modified, summary.deleted) == ((THREE[0],), (THREE[1],), (THREE[2],))
    assert summary.changes.digest == hashlib.sha256(full_list(THREE)).hexdigest()
    assert (summary.changes.total, summary.changes.complete) == (3, True)


def test_entries_are_sorted_by_raw_bytes_not_by_text() -> None:
    raw = [b"a", b"\x7f", b"\xc3\xa9", b"\xff"]
    entries = sort_changes(created(escape_path(name)) for name in reversed(raw))
    assert [entry.path for entry in entries] == ["a", "\\x7f", "é", "\\xff"]


@pytest.mark.parametrize("entries", [(THREE[1], THREE[0]), (THREE[0], THREE[0])], ids=["order", "twice"])
def test_a_summary_refuses_what_is_out_of_order(entries: tuple[ChangedEntry, ...]) -> None:
    with pytest.raises(ReceiptFormError):
        summarize_changes(entries)


def test_25000_created_files_fit_and_the_full_list_proves_the_rest() -> None:
    entries = tuple(created(f"generated/module-{number:05}.py") for number in range(25_000))
    summary = summarize_changes(entries)
    assert (len(summary.created), summary.changes.created) == (MAX_LISTED_CHANGES, 25_000)
    assert not summary.changes.complete
    ledger = Ledger()
    predicate = ledger.predicate(entries)
    assert len(ledger.add(predicate)) < GRPC_DEFAULT_BYTES
    assert inconsistency(predicate) is None
    assert prove_changes(predicate, full_list(entries)) == entries


def test_long_names_make_the_list_shorter_not_the_receipt_too_large() -> None:
    entries = tuple(created(f"{number:04}" + "\\xff" * 250) for number in range(3000))
    ledger = Ledger()
    predicate = ledger.predicate(entries)
    assert 0 < len(predicate.workspace.created) < 3000
    assert len(ledger.add(predicate)) < GRPC_DEFAULT_BYTES < MAX_ENVELOPE_BYTES


def test_what_is_listed_is_a_prefix() -> None:
    entries = (created("a"), created("b" * 3000), created("c"))
    summary = summarize_changes(entries, max_bytes=1000)
    assert [entry.path for entry in summary.created] == ["a"]


@pytest.mark.parametrize(
    "lines",
    [
        full_list(THREE)[:-1],
        full_list((THREE[1], THREE[0])),
        full_list(THREE[:1]) * 2,
        full_list(THREE).replace(b'"kind"', b' "kind"'),
        b"\n",
        b"{}\n",
        b'{"kind":"created","path":"a"}\n',
    ],
    ids=["cut", "order", "twice", "not canonical", "empty line", "empty object", "no state"],
)
def test_a_full_list_in_any_other_form_is_refused(lines: bytes) -> None:
    with pytest.raises(MalformedReceiptError):
        parse_change_lines(lines)


@pytest.mark.parametrize("lines", [b"", full_list(THREE[:2]), full_list((*THREE, created("d")))])
def test_a_full_list_that_was_not_signed_is_refused(lines: bytes) -> None:
    with pytest.raises(NotVerifiedError) as error:
        prove_changes(Ledger().predicate(THREE), lines)
    assert error.value.reason == "full-list-digest"


def test_a_full_list_with_other_counts_is_refused() -> None:
    predicate = Ledger().predicate(THREE)
    changes = replace(predicate.workspace.changes, created=2)
    with pytest.raises(NotVerifiedError) as error:
        prove_changes(
            replace(predicate, workspace=replace(predicate.workspace, changes=changes)), full_list(THREE)
        )
    assert error.value.reason == "full-list-counts"


def directory_change() -> ChangedEntry:
    state = EntryState(EntryType.DIRECTORY, digest("x"))
    return ChangedEntry("a", ChangeKind.MODIFIED, state, replace(state, digest=digest("y")))


@pytest.mark.parametrize(
    "entry",
    [
        directory_change(),
        replace(modified("a"), after=modified("a").before),
        replace(created("a"), after=None),
        replace(created("a"), before=created("a").after),
        replace(deleted("a"), before=None),
        replace(created("a"), path="../a"),
    ],
    ids=[
        "directory modified",
        "not modified",
        "created nothing",
        "created over",
        "deleted nothing",
        "escapes",
    ],
)
def test_an_entry_that_contradicts_itself_has_no_line(entry: ChangedEntry) -> None:
    with pytest.raises(ReceiptFormError):
        encode_change_line(entry)


INCONSISTENT: dict[str, Any] = {
    "digest of the list": lambda w: replace(w, changes=replace(w.changes, digest=digest("x"))),
    "more counted than listed": lambda w: replace(w, changes=replace(w.changes, created=9)),
    "more listed than counted": lambda w: replace(w, changes=replace(w.changes, created=0)),
    "complete that says it is not": lambda w: replace(w, changes=replace(w.changes, complete=False)),
    "list out of order": lambda w: replace(w, created=(created("b"), created("a"))),
    "path in two lists": lambda w: replace(w, deleted=(deleted("a"),)),
    "directory modified": lambda w: replace(w, modified=(directory_change(),)),
    "nothing changed": lambda w: replace(w, after=w.before),
    "no state after": lambda w: replace(w, after=None),
}


@pytest.mark.parametrize("name", INCONSISTENT)
def test_changes_that_contradict_each_other_are_found(name: str) -> None:
    predicate = Ledger().predicate(THREE)
    assert inconsistency(predicate) is None
    assert inconsistency(replace(predicate, workspace=INCONSISTENT[name](predicate.workspace))) is not None


def test_a_difference_may_be_explained_by_what_others_did_meanwhile() -> None:
    predicate = Ledger().predicate((), workspace={"after": digest("moved")})
    assert inconsistency(predicate) is not None
    outside = replace(predicate.workspace, outside_changes=OutsideChanges(modified=("notes",)))
    assert inconsistency(replace(predicate, workspace=outside)) is None


def test_paths_are_listed_as_far_as_they_fit() -> None:
    assert bound_paths(["aa", "bb", "cc"], max_bytes=4) == (("aa", "bb"), 1)
    assert bound_paths(["a" * 100], max_bytes=4) == (("a" * 100,), 0)
    assert bound_paths([]) == ((), 0)

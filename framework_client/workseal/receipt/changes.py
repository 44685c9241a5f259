"""Lists of changes: what a receipt lists, and the full list behind its digest.

The full list is JSON Lines: one RFC 8785 object and a newline for each entry,
sorted by raw path bytes. Its SHA-256 is in the receipt, so that whoever fetches
the list can prove it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidInputError, NotVerifiedError
from workseal.paths import unescape_path
from workseal.receipt.codec import DecodeError
from workseal.receipt.errors import MalformedReceiptError, ReceiptFormError
from workseal.receipt.form import CHANGE_LINE, MAX_LISTED_CHANGES
from workseal.receipt.predicate import ChangedEntry, ChangeKind, Changes, EntryType, ToolExecutionPredicate

#: Bytes of full-list lines that a receipt lists at most: with everything else in
#: it, the envelope stays below the 4 MiB that gRPC accepts by default.
MAX_LISTED_BYTES: Final = 2 * 1024 * 1024
MAX_PATH_BYTES: Final = 128 * 1024
_MAX_LINE_BYTES: Final = 1024 * 1024

NO_CHANGES: Final = Changes(0, 0, 0, hashlib.sha256(b"").hexdigest(), complete=True)


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """What goes into a receipt about the changes of a call."""

    created: tuple[ChangedEntry, ...]
    modified: tuple[ChangedEntry, ...]
    deleted: tuple[ChangedEntry, ...]
    changes: Changes


def entry_problem(entry: ChangedEntry) -> str | None:
    """Return what is wrong with an entry in itself, or None."""
    expected = {
        ChangeKind.CREATED: (False, True),
        ChangeKind.MODIFIED: (True, True),
        ChangeKind.DELETED: (True, False),
    }[ChangeKind(entry.kind)]
    if (entry.before is not None, entry.after is not None) != expected:
        return f"a {entry.kind} entry with the wrong states"
    if entry.before is not None and entry.after is not None:
        if entry.before == entry.after:
            return "a modified entry that did not change"
        if entry.before.type == entry.after.type == EntryType.DIRECTORY:
            return "a directory listed as modified"
    return None


def encode_change_line(entry: ChangedEntry) -> bytes:
    """Return the line of one entry in the full list, newline included.

    Raises:
        ReceiptFormError: the entry's states do not fit its kind, or the path is not escaped.
    """
    if (problem := entry_problem(entry)) is not None:
        raise ReceiptFormError(f"{entry.path}: {problem}", field="changes")
    value = CHANGE_LINE.encode(entry)
    try:
        CHANGE_LINE.decode(value, "change")
    except DecodeError as error:
        raise ReceiptFormError(str(error), field="changes") from error
    return canonical_json(value) + b"\n"


def parse_change_lines(data: bytes) -> tuple[ChangedEntry, ...]:
    """Read a full list.

    Args:
        data: JSON Lines, as :func:`encode_change_line` makes them.

    Returns:
        The entries, sorted by raw path bytes, each path once.

    Raises:
        MalformedReceiptError: check ``changes``; not exactly what encoding would give.
    """
    entries = []
    previous: bytes | None = None
    if data and not data.endswith(b"\n"):
        raise _malformed("the last line does not end")
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            entry = CHANGE_LINE.decode(parse_json(line, max_bytes=_MAX_LINE_BYTES), "change")
            canonical = encode_change_line(entry)
        except (InvalidInputError, DecodeError) as error:
            raise _malformed(f"line {number}: {error}") from error
        raw = unescape_path(entry.path)
        if canonical != line + b"\n" or (previous is not None and raw <= previous):
            raise _malformed(f"line {number} is not in canonical form or out of order")
        previous = raw
        entries.append(entry)
    return tuple(entries)


def _malformed(message: str) -> MalformedReceiptError:
    return MalformedReceiptError(f"full list of changes: {message}", check="changes", reason="full-list")


def sort_changes(entries: Iterable[ChangedEntry]) -> list[ChangedEntry]:
    """Return entries sorted by raw path bytes."""
    return sorted(entries, key=lambda entry: unescape_path(entry.path))


def summarize_changes(
    entries: Iterable[ChangedEntry],
    *,
    max_entries: int = MAX_LISTED_CHANGES,
    max_bytes: int = MAX_LISTED_BYTES,
) -> ChangeSummary:
    """Return what a receipt says of a call's changes.

    Args:
        entries: all changes, sorted by raw path bytes; may be a stream.
        max_entries: how many of them to list.
        max_bytes: how many bytes of their lines to list.

    Raises:
        ReceiptFormError: an entry is malformed or out of order.
    """
    counts = dict.fromkeys(ChangeKind, 0)
    listed: dict[ChangeKind, list[ChangedEntry]] = {kind: [] for kind in ChangeKind}
    hasher = hashlib.sha256()
    size, room, previous = 0, max_entries, b""
    for entry in entries:
        raw, line, kind = unescape_path(entry.path), encode_change_line(entry), ChangeKind(entry.kind)
        if raw <= previous:
            raise ReceiptFormError(f"{entry.path} is out of order or twice", field="changes")
        previous = raw
        hasher.update(line)
        counts[kind] += 1
        size += len(line)
        # Once something was left out, nothing after it is listed: a prefix is what readers expect.
        room = room - 1 if size <= max_bytes else 0
        if room >= 0 and size <= max_bytes:
            listed[kind].append(entry)
    lists = {kind: tuple(listed[kind]) for kind in ChangeKind}
    complete = all(len(lists[kind]) == counts[kind] for kind in ChangeKind)
    created, modified, deleted = ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.DELETED
    return ChangeSummary(
        lists[created],
        lists[modified],
        lists[deleted],
        Changes(counts[created], counts[modified], counts[deleted], hasher.hexdigest(), complete),
    )


def bound_paths(paths: Sequence[str], *, max_bytes: int = MAX_PATH_BYTES) -> tuple[tuple[str, ...], int]:
    """Return the first paths that fit in a receipt, and how many were left out.

    Args:
        paths: escaped paths, in the order in which they are to be listed.
        max_bytes: UTF-8 bytes to list at most; one path is listed whatever its length.
    """
    size = 0
    for index, path in enumerate(paths):
        size += len(path.encode("utf-8"))
        if index and size > max_bytes:
            return tuple(paths[:index]), len(paths) - index
    return tuple(paths), 0


def prove_changes(predicate: ToolExecutionPredicate, full_list: bytes) -> tuple[ChangedEntry, ...]:
    """Return the full list of a receipt's changes, shown to be the one that was signed.

    Args:
        predicate: of a verified receipt.
        full_list: JSON Lines, from a source that need not be trusted.

    Raises:
        NotVerifiedError: check ``changes``; the list is not the one in the receipt.
    """
    changes = predicate.workspace.changes
    if hashlib.sha256(full_list).hexdigest() != changes.digest:
        raise NotVerifiedError(
            "the full list of changes is not the one that was signed: fetch it again",
            check="changes",
            reason="full-list-digest",
        )
    entries = parse_change_lines(full_list)
    counts = tuple(sum(entry.kind == kind for entry in entries) for kind in ChangeKind)
    if counts != (changes.created, changes.modified, changes.deleted):
        raise NotVerifiedError(
            "the full list of changes does not have the counts in the receipt",
            check="changes",
            reason="full-list-counts",
        )
    return entries

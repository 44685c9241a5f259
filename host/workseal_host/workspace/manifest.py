"""Flat listings of a tree, and their saved form.

A saved manifest is JSON Lines: a header, then one line per entry in order of the
raw path bytes. It is self-checking: reading rebuilds the tree and compares its
digest with the header's, so a cut or edited manifest is refused. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from workseal.canonical import parse_json
from workseal.errors import InvalidInputError
from workseal.paths import escape_path, unescape_path
from workseal_host.workspace.model import (
    DIGEST_BYTES,
    Directory,
    EntryType,
    Leaf,
    Node,
    count_entries,
    iter_directories,
    leaf_from_code,
)
from workseal_host.workspace.scheme import DigestScheme, workspace_digest

MANIFEST_FORM: Final = "workseal-manifest/1"
MAX_LINE_BYTES: Final = 1 << 24

_ENTRY_KEYS: Final = {"path", "type", "sha256"}
_HEADER_KEYS: Final = {"form", "scheme", "digest", "policy_digest", "entries", "unreadable", "unstable"}


def iter_entries(tree: Directory) -> Iterator[tuple[bytes, Node]]:
    """Yield (path, node) of everything below a tree, sorted by raw path bytes.

    Directories come with their node; the root itself is not listed. Holds one
    sorted list per open directory, never the whole listing.
    """
    stack = [_steps(b"", tree)]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        key, node = step
        if key.endswith(b"/") and isinstance(node, Directory):
            stack.append(_steps(key, node))
        else:
            yield key, node


def _steps(prefix: bytes, directory: Directory) -> Iterator[tuple[bytes, Node]]:
    """Yield each entry under its name, and each directory's content under its name and a slash.

    The content is a step of its own because `a.b` sorts between `a` and `a/b`.
    """
    steps = list(directory.entries.items())
    steps += [(name + b"/", node) for name, node in directory.entries.items() if isinstance(node, Directory)]
    steps.sort(key=lambda step: step[0])
    return ((prefix + name, node) for name, node in steps)


@dataclass(frozen=True, slots=True)
class ManifestHeader:
    """What a saved manifest says of itself.

    Args:
        scheme: digest scheme of the tree.
        digest: 32 bytes, the workspace digest under that scheme.
        policy_digest: lower-case hex SHA-256 of the ignore policy.
        entries: how many lines follow.
        unreadable: raw paths that could not be read.
        unstable: raw paths that would not hold still.
    """

    scheme: DigestScheme
    digest: bytes
    policy_digest: str
    entries: int
    unreadable: tuple[bytes, ...] = ()
    unstable: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedManifest:
    """A manifest that was read back, with the tree its lines describe."""

    header: ManifestHeader
    tree: Directory


def write_manifest(header: ManifestHeader, tree: Directory) -> Iterator[str]:
    """Yield the lines of a saved manifest, without line ends.

    Args:
        header: with the digest and the number of entries of ``tree``.
        tree: projected onto the header's scheme.
    """
    yield json.dumps(
        {
            "form": MANIFEST_FORM,
            "scheme": header.scheme.value,
            "digest": f"sha256:{header.digest.hex()}",
            "policy_digest": f"sha256:{header.policy_digest}",
            "entries": header.entries,
            "unreadable": [escape_path(path) for path in header.unreadable],
            "unstable": [escape_path(path) for path in header.unstable],
        },
        ensure_ascii=False,
    )
    for path, node in listed_entries(tree, header.scheme):
        line = {"path": escape_path(path), "type": node.type.value, "sha256": node.digest.hex()}
        yield json.dumps(line, ensure_ascii=False)


def listed_entries(tree: Directory, scheme: DigestScheme) -> Iterator[tuple[bytes, Node]]:
    """Yield the entries that are listed under a scheme: no directories under ``nonoka/1``."""
    if scheme is DigestScheme.NONOKA_1:
        return ((path, node) for path, node in iter_entries(tree) if isinstance(node, Leaf))
    return iter_entries(tree)


def count_listed(tree: Directory, scheme: DigestScheme) -> int:
    """Return how many entries of a projected tree are listed under its scheme."""
    if scheme is DigestScheme.NONOKA_1:
        directories = sum(1 for _ in iter_directories(tree)) - 1
        return count_entries(tree) - directories
    return count_entries(tree)


def read_manifest(lines: Iterable[bytes]) -> SavedManifest:
    """Read a saved manifest and check it against its own digest.

    Args:
        lines: with or without line ends.

    Raises:
        InvalidInputError: not a manifest, or not the one its digest names.
    """
    numbered = iter(lines)
    header = _read_header(next(numbered, b""))
    builder = _TreeBuilder(header.scheme)
    count = 0
    for line in numbered:
        count += 1
        builder.add(line)
    tree = builder.finish()
    if count != header.entries or workspace_digest(tree, header.scheme) != header.digest:
        raise InvalidInputError(
            "the manifest does not add up to its own digest: it was cut off or edited; save it again"
        )
    return SavedManifest(header, tree)


def _read_header(line: bytes) -> ManifestHeader:
    value = parse_json(line, max_bytes=MAX_LINE_BYTES * 64)
    if not isinstance(value, dict) or value.get("form") != MANIFEST_FORM or set(value) != _HEADER_KEYS:
        raise InvalidInputError(f"not a saved manifest: the first line must be a {MANIFEST_FORM} header")
    try:
        scheme = DigestScheme(value["scheme"])
    except ValueError as error:
        raise InvalidInputError(f"unknown digest scheme {value['scheme']!r}", field="scheme") from error
    if not isinstance(value["entries"], int):
        raise InvalidInputError("the number of entries is not a number", field="entries")
    return ManifestHeader(
        scheme=scheme,
        digest=parse_digest(value["digest"]),
        policy_digest=parse_digest(value["policy_digest"]).hex(),
        entries=value["entries"],
        unreadable=_paths(value["unreadable"]),
        unstable=_paths(value["unstable"]),
    )


def parse_digest(text: Any) -> bytes:
    """Return the bytes of ``sha256:<64 lower-case hex digits>``.

    Raises:
        InvalidInputError: the text has another form.
    """
    if isinstance(text, str) and text.startswith("sha256:"):
        return _hex_digest(text.removeprefix("sha256:"))
    raise InvalidInputError(f"{text!r} is not a digest: write sha256: and 64 lower-case hex digits")


def _hex_digest(text: Any) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != DIGEST_BYTES or digest.hex() != text:
        raise InvalidInputError(f"{text!r} is not 64 lower-case hex digits")
    return digest


def _paths(values: Any) -> tuple[bytes, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidInputError("expected a list of paths")
    return tuple(unescape_path(value) for value in values)


class _TreeBuilder:
    """Collects manifest lines, then assembles directories from the deepest up."""

    def __init__(self, scheme: DigestScheme) -> None:
        self._scheme = scheme
        self._children: dict[bytes, dict[bytes, Node]] = {b"": {}}
        self._directory_digests: dict[bytes, bytes] = {}
        self._previous = b""

    def add(self, line: bytes) -> None:
        value = parse_json(line, max_bytes=MAX_LINE_BYTES)
        if not isinstance(value, dict) or set(value) != _ENTRY_KEYS:
            raise InvalidInputError("a manifest line must have exactly path, type and sha256")
        path, digest = _paths([value["path"]])[0], _hex_digest(value["sha256"])
        if path <= self._previous or any(name in (b"", b".", b"..") for name in path.split(b"/")):
            raise InvalidInputError(f"manifest path {value['path']!r} is impossible or out of order")
        self._previous = path
        parent, _, name = path.rpartition(b"/")
        if value["type"] == EntryType.DIRECTORY.value:
            self._directory_digests[path] = digest
            self._children[path] = {}
        else:
            self._parent(parent)[name] = _leaf(value["type"], name, digest)

    def _parent(self, path: bytes) -> dict[bytes, Node]:
        if path not in self._children and self._scheme is DigestScheme.NONOKA_1:
            ancestor = path
            while ancestor and ancestor not in self._children:
                self._children[ancestor] = {}
                ancestor = ancestor.rpartition(b"/")[0]
        if path not in self._children:
            raise InvalidInputError(f"manifest does not list the directory {escape_path(path)!r}")
        return self._children[path]

    def finish(self) -> Directory:
        # Deeper first, so that every directory is complete when its parent is made.
        for path in sorted(self._children, key=lambda each: each.count(b"/"), reverse=True):
            if not path:
                continue
            directory = Directory(self._children[path])
            if self._directory_digests.get(path, directory.digest) != directory.digest:
                raise InvalidInputError(
                    f"manifest lines below {escape_path(path)!r} do not add up to its digest"
                )
            parent, _, name = path.rpartition(b"/")
            if self._parent(parent).setdefault(name, directory) is not directory:
                raise InvalidInputError(f"manifest lists {escape_path(path)!r} as a file and as a directory")
        return Directory(self._children[b""])


def _leaf(word: Any, name: bytes, digest: bytes) -> Leaf:
    try:
        entry_type = EntryType(word)
    except ValueError as error:
        raise InvalidInputError(f"unknown entry type {word!r}", field="type") from error
    leaf = leaf_from_code(entry_type.code, digest)
    if leaf.type is not entry_type:
        raise InvalidInputError(f"the digest of {escape_path(name)!r} is not that of a {entry_type.value}")
    return leaf

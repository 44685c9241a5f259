"""The ignore policy: what of a workspace does not count.

One evaluator serves digest, diff, watcher and rollback. Precedence: the built-in
names, then ``.worksealignore`` files from the outermost to the innermost, then
the host's configuration; the last match wins. A path below an ignored directory
is never asked about, so nothing in it can be re-included. ``.worksealignore``
files always count.

A policy is immutable; it is what the rules were at one moment. Pure.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Final

from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidInputError
from workseal.paths import escape_path, unescape_path
from workseal_host.errors import IgnoreRulesError
from workseal_host.workspace.rules import RuleSet, parse_rules

RULES_NAME: Final = b".worksealignore"
# Of all files together: a tool may have written them to keep the host busy.
MAX_RULES_BYTES: Final = 256 * 1024
MAX_RULES: Final = 5_000

# Fixed surface: in this order in the policy digest, and equal to what nonoka/1 excludes.
BUILTIN_NAMES: Final = (
    ".git",
    ".nonoka",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".tox",
    ".nox",
    ".coverage",
    "coverage",
    "htmlcov",
)


class Verdict(Enum):
    """Whether a path counts, and if not, by what."""

    KEPT = "kept"
    BUILTIN = "builtin"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class RuleChain:
    """The rules that hold in one directory.

    Args:
        builtin: built-in names.
        files: rule sets from the root's to the directory's own.
        config: the host's own rules.
    """

    builtin: frozenset[bytes]
    files: tuple[RuleSet, ...]
    config: RuleSet

    def enter(self, rules: RuleSet) -> RuleChain:
        """Return the chain with one more file, of this directory, at its inner end."""
        return RuleChain(self.builtin, (*self.files, rules), self.config)

    def verdict(self, path: bytes, name: bytes, *, is_dir: bool) -> Verdict:
        """Decide about an entry of the directory.

        Args:
            path: raw path below the root.
            name: its last component.
            is_dir: whether it is a directory.
        """
        if name == RULES_NAME:
            return Verdict.KEPT
        for rules in (self.config, *reversed(self.files)):
            ignored = rules.decides(path, name, is_dir=is_dir)
            if ignored is not None:
                return Verdict.RULE if ignored else Verdict.KEPT
        return Verdict.BUILTIN if name in self.builtin else Verdict.KEPT


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One ``.worksealignore``.

    Args:
        path: its raw path below the root.
        content: its bytes.
        sha256: 32 bytes over the content.
        rules: what it says.
    """

    path: bytes
    content: bytes
    sha256: bytes
    rules: RuleSet

    @classmethod
    def read(cls, path: bytes, content: bytes) -> RuleFile:
        """Parse the content of a rules file at a path."""
        rules = _rule_set(path.rpartition(b"/")[0], content)
        return cls(path, content, hashlib.sha256(content).digest(), rules)


@lru_cache(maxsize=64)
def _rule_set(directory: bytes, content: bytes) -> RuleSet:
    """Parse once what every scan reads again."""
    return RuleSet(directory, parse_rules(content))


class IgnorePolicy:
    """What does not count, at one moment. Immutable.

    Args:
        files: the rules files; kept sorted by raw path.
        config: patterns of the host's configuration, relative to the root.

    Raises:
        IgnoreRulesError: a configured pattern is not one line of text, or there are too many rules.
    """

    def __init__(self, files: Iterable[RuleFile] = (), config: Sequence[str] = ()) -> None:
        self.builtin: Final = BUILTIN_NAMES
        self.files: Final = tuple(sorted(files, key=lambda file: file.path))
        self.config: Final = tuple(config)
        for pattern in self.config:
            _check_config(pattern)
        self._by_directory = {file.rules.directory: file.rules for file in self.files}
        self._base = RuleChain(
            frozenset(name.encode() for name in self.builtin),
            (),
            RuleSet(b"", parse_rules("\n".join(self.config).encode("utf-8"))),
        )
        check_bounds(self.files)

    @classmethod
    def nonoka(cls) -> IgnorePolicy:
        """Return the policy of ``nonoka/1``: the built-in names alone."""
        return cls()

    @cached_property
    def digest(self) -> str:
        """Lower-case hex SHA-256 of the policy's RFC 8785 form, as in ``docs/digest.md``."""
        form = {
            "builtin": list(self.builtin),
            "files": [{"path": escape_path(file.path), "sha256": file.sha256.hex()} for file in self.files],
            "config": list(self.config),
        }
        return hashlib.sha256(canonical_json(form)).hexdigest()

    def to_bytes(self) -> bytes:
        """Return a form from which :meth:`from_bytes` rebuilds the policy without the files."""
        form = {
            "files": [
                {"path": escape_path(file.path), "content": base64.b64encode(file.content).decode()}
                for file in self.files
            ],
            "config": list(self.config),
        }
        return canonical_json(form)

    @classmethod
    def from_bytes(cls, data: bytes) -> IgnorePolicy:
        """Rebuild a policy from :meth:`to_bytes`.

        Raises:
            InvalidInputError: the bytes are not such a form.
        """
        form = parse_json(data, max_bytes=len(data))
        try:
            files = [
                RuleFile.read(unescape_path(file["path"]), base64.b64decode(file["content"], validate=True))
                for file in form["files"]
            ]
            return cls(files, form["config"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError("not a stored ignore policy; restore the ledger from a backup") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IgnorePolicy) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def base_chain(self) -> RuleChain:
        """Return the rules that hold whatever files there are."""
        return self._base

    def rules_in(self, directory: bytes) -> RuleSet | None:
        """Return the rules of the file that lies in a directory, given by its raw path."""
        return self._by_directory.get(directory)

    def chain(self, directory: bytes) -> RuleChain:
        """Return the rules that hold in a directory, given by its raw path; empty for the root."""
        chain = self._base
        names = directory.split(b"/") if directory else []
        for depth in range(len(names) + 1):
            rules = self.rules_in(b"/".join(names[:depth]))
            chain = chain if rules is None else chain.enter(rules)
        return chain

    def is_ignored(self, path: bytes, is_dir: bool) -> bool:
        """Return whether a path does not count.

        Args:
            path: raw path below the root, of which no parent is ignored.
            is_dir: whether it is a directory; a link to one is not.
        """
        directory, _, name = path.rpartition(b"/")
        return self.chain(directory).verdict(path, name, is_dir=is_dir) is not Verdict.KEPT


def check_bounds(files: Iterable[RuleFile]) -> None:
    """Refuse rules that could keep the host busy.

    Raises:
        IgnoreRulesError: the files are too large, or hold too many rules, in all.
    """
    rules = content_bytes = 0
    for file in files:
        rules, content_bytes = rules + len(file.rules), content_bytes + len(file.content)
        if rules > MAX_RULES or content_bytes > MAX_RULES_BYTES:
            raise IgnoreRulesError(
                f"with {escape_path(file.path)} there are more than {MAX_RULES} ignore rules or "
                f"{MAX_RULES_BYTES} bytes of them: merge or remove some",
                path=file.path,
            )


def _check_config(pattern: str) -> None:
    try:
        canonical_json(pattern)
    except InvalidInputError as error:
        raise IgnoreRulesError(f"the configured ignore pattern {pattern!r} is not text") from error
    if any(char in pattern for char in "\0\r\n"):
        raise IgnoreRulesError(
            f"the configured ignore pattern {pattern!r} is more than one line: list each by itself"
        )

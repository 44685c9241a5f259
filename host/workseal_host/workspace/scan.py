"""Scans of a workspace: from a root and a level to a tree.

A scan goes by rules that it reads on the way, or by a policy that it is given: the
two scans of one call go by the rules in force before it. What a scan says of
itself (level, unreadable, unstable) is what really happened, not what was asked for.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from workseal_host.errors import IgnoreRulesError, WorkspaceError
from workseal_host.workspace.ignore import RULES_NAME, IgnorePolicy, RuleFile
from workseal_host.workspace.leaves import WalkOptions
from workseal_host.workspace.limits import ScanLimits
from workseal_host.workspace.model import Directory, EntryType, Leaf, count_entries, iter_directories, lookup
from workseal_host.workspace.reading import Hash
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.statcache import MemoryStatCache, StatCache, file_clock_ns
from workseal_host.workspace.walk import ROOT_NAME, Walk


class ScanLevel(StrEnum):
    """How much a scan read itself; the words are those of receipts."""

    FULL = "full"
    STAT = "stat"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan found.

    Args:
        tree: everything that counts.
        level: what was really done: ``full`` if no stat stood for a read.
        policy: the ignore rules that were used.
        unreadable: raw paths that could not be read, sorted.
        unstable: raw paths that would not hold still, sorted; ``.`` is the root itself.
        entries: number of entries below the root.
        rules_changed: with a given policy: whether the rules files in the tree are others than the policy's.
    """

    tree: Directory
    level: ScanLevel
    policy: IgnorePolicy
    unreadable: list[bytes]
    unstable: list[bytes]
    entries: int
    rules_changed: bool = False

    @property
    def settled(self) -> bool:
        """Whether the tree is certain; only then may it satisfy a precondition or a check."""
        return not self.unreadable and not self.unstable


class Scanner:
    """Scans one workspace, one scan at a time; further callers wait.

    Args:
        root: the open workspace; stays the caller's to close.
        config_patterns: ignore patterns of the host's configuration, relative to the root.
        cache: remembers digests between scans; None for one in memory.
        limits: what a scan may cost; None for the defaults.
        clock_ns: the clock that stamps files, in ns since the epoch.
        new_hash: makes the hash of contents; anything but SHA-256 gives a tree that no scheme names.

    Raises:
        IgnoreRulesError: a configured pattern is malformed.
    """

    def __init__(
        self,
        root: WorkspaceRoot,
        *,
        config_patterns: Iterable[str] = (),
        cache: StatCache | None = None,
        limits: ScanLimits | None = None,
        clock_ns: Callable[[], int] = file_clock_ns,
        new_hash: Callable[[], Hash] = hashlib.sha256,
    ) -> None:
        self._root = root
        self._config = IgnorePolicy((), tuple(config_patterns)).config
        self._cache = MemoryStatCache() if cache is None else cache
        self._limits = ScanLimits.of() if limits is None else limits
        self._clock_ns = clock_ns
        self._new_hash = new_hash
        self._lock = threading.Lock()

    def scan(
        self,
        level: ScanLevel = ScanLevel.STAT,
        policy: IgnorePolicy | None = None,
        builtin_only: bool = False,
    ) -> ScanResult:
        """Scan the workspace.

        Args:
            level: ``full`` reads everything; any other level may trust stats where the file system allows it.
            policy: rules to go by; None for those that are in the workspace now.
            builtin_only: go by the built-in names alone, as ``nonoka/1`` does.

        Raises:
            RootReplacedError: the root is no longer the directory that was opened.
            IgnoreRulesError: the rules cannot be read, or leave nothing of the workspace.
            WorkspaceError: something else cannot be observed; ``path`` names it.
        """
        given = IgnorePolicy.nonoka() if builtin_only else policy
        with self._lock:
            walk = Walk(self._options(level, given))
            tree = self._walk(walk)
        used = IgnorePolicy(_still_there(tree, walk), self._config) if given is None else given
        if given is None and walk.ignored_by_rule and not _holds_something(tree):
            raise IgnoreRulesError(
                "the ignore rules leave nothing of the workspace: narrow .worksealignore or the config",
                path=used.files[0].path if used.files else b"",
            )
        stat_could_prove = level is not ScanLevel.FULL and walk.leaves.trust.any_trusted
        return ScanResult(
            tree=tree,
            level=ScanLevel.STAT if stat_could_prove else ScanLevel.FULL,
            policy=used,
            unreadable=sorted(path for path in walk.leaves.unreadable if _is_unreadable(tree, path)),
            unstable=sorted(
                path for path in walk.leaves.unstable if path == ROOT_NAME or lookup(tree, path) is not None
            ),
            entries=count_entries(tree),
            rules_changed=policy is not None and not builtin_only and _rules_differ(tree, used),
        )

    def stop(self) -> None:
        """End the scan that runs, and every later one, with an error. May be called from another thread."""
        self._limits.stopped.set()

    def read_policy(self) -> IgnorePolicy:
        """Return the ignore rules that are in the workspace now, reading nothing but rules files.

        Raises:
            RootReplacedError: the root is no longer the directory that was opened.
            IgnoreRulesError: a rules file cannot be read.
            WorkspaceError: a directory cannot be observed.
        """
        with self._lock:
            walk = Walk(self._options(ScanLevel.FULL, None, rules_only=True))
            tree = self._walk(walk)
        return IgnorePolicy(_still_there(tree, walk), self._config)

    def _options(
        self, level: ScanLevel, policy: IgnorePolicy | None, *, rules_only: bool = False
    ) -> WalkOptions:
        return WalkOptions(
            policy=policy,
            config=self._config,
            cache=self._cache,
            use_cache=level is not ScanLevel.FULL,
            rules_only=rules_only,
            new_hash=self._new_hash,
            start_ns=self._clock_ns(),
            progress=self._limits.start(),
        )

    def _walk(self, walk: Walk) -> Directory:
        self._root.check()
        try:
            root_fd = self._root.open_dir()
        except OSError as error:
            raise WorkspaceError(
                f"cannot open the workspace: {error.strerror}; let the host read it"
            ) from error
        if not walk.reads_contents:
            return walk.run(root_fd)
        self._cache.begin()
        tree = walk.run(root_fd)
        self._root.check()
        self._cache.finish()
        return tree


def _still_there(tree: Directory, walk: Walk) -> Iterable[RuleFile]:
    """Return the rules files that were not gone again before their directory settled."""
    return (file for path, file in walk.rules.items() if isinstance(lookup(tree, path), Leaf))


def _is_unreadable(tree: Directory, path: bytes) -> bool:
    node = lookup(tree, path)
    return node is not None and node.type is EntryType.UNREADABLE


def _holds_something(tree: Directory) -> bool:
    """Return whether there is anything but rules files and the directories that hold them."""
    return any(
        (isinstance(node, Leaf) and name != RULES_NAME) or (isinstance(node, Directory) and not node.entries)
        for directory in iter_directories(tree)
        for name, node in directory.entries.items()
    )


def _rules_differ(tree: Directory, policy: IgnorePolicy) -> bool:
    found = sum(RULES_NAME in directory.entries for directory in iter_directories(tree))
    if found != len(policy.files):
        return True
    nodes = ((file, lookup(tree, file.path)) for file in policy.files)
    return any(
        node is None or node.type not in (EntryType.FILE, EntryType.EXECUTABLE) or node.digest != file.sha256
        for file, node in nodes
    )

"""One walk over a workspace: from open directories to a tree.

The walk goes by directory descriptors and raw names, never by paths, and follows no
link; so nothing outside the root is read, whatever is swapped in meanwhile. It is
iterative and keeps few descriptors open, however deep the tree.

A name that vanishes between listing and reading is absent. When a directory has been
gone through and may have changed since it was listed, it is listed again and what
differs is looked at again, a bounded number of times; then it is *unstable*.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from workseal.paths import escape_path
from workseal_host.errors import IgnoreRulesError, WorkspaceError
from workseal_host.workspace.frames import DIRECTORY_FLAGS, Frame, Listing, reopen, save_descriptors
from workseal_host.workspace.ignore import (
    MAX_RULES_BYTES,
    RULES_NAME,
    IgnorePolicy,
    RuleChain,
    RuleFile,
    Verdict,
)
from workseal_host.workspace.leaves import LeafReader, WalkOptions
from workseal_host.workspace.model import Directory, EntryType, Leaf, Node, unreadable_leaf
from workseal_host.workspace.reading import EntryChangedError, read_small
from workseal_host.workspace.statcache import StatIdentity, is_quiet_since

MAX_ROUNDS: Final = 8
MAX_LOOKS: Final = 8
# Twice what a system call takes as one path. Longer ones fit no receipt, and their sum no memory: a
# tool that goes down step by step may make a chain of directories of any depth.
MAX_PATH_BYTES: Final = 8192

# The root's own name where it is listed as unstable; no entry can be called so.
ROOT_NAME: Final = b"."

_GONE_ERRORS: Final = (errno.ENOENT, errno.ESTALE)
_DENIED_ERRORS: Final = (errno.EACCES, errno.EPERM)
_NOT_A_DIRECTORY_ERRORS: Final = (errno.ENOTDIR, errno.ELOOP)


class _DirectoryDeniedError(Exception):
    """A directory can be listed but not searched, so it counts as unreadable."""


class Walk:
    """Walk once; afterwards the attributes say what was met.

    Attributes:
        rules: every rules file that was read, by raw path.
        ignored_by_rule: whether anything but a built-in name ignored something.
        leaves: what was met besides: unreadable and unstable paths, file systems.
    """

    def __init__(self, options: WalkOptions) -> None:
        self._options = options
        self._base = (options.policy or IgnorePolicy((), options.config)).base_chain()
        self._stack: list[Frame] = []
        self.rules: dict[bytes, RuleFile] = {}
        self.ignored_by_rule = False
        self._rule_bytes = 0
        self.leaves = LeafReader(options)

    @property
    def reads_contents(self) -> bool:
        """Whether files are read, not just rules."""
        return not self._options.rules_only

    def run(self, root_fd: int) -> Directory:
        """Walk from an open directory, which is closed in any case.

        Raises:
            WorkspaceError: something cannot be observed and is not merely gone or unreadable.
        """
        try:
            self._push(b"", root_fd, self._base)
            while True:
                tree = self._step()
                if tree is not None:
                    return tree
        finally:
            for frame in self._stack:
                frame.close()

    def _step(self) -> Directory | None:
        """Do the next piece of work; return the tree when it is complete."""
        frame = self._stack[-1]
        self._options.tick(frame.path)
        try:
            if frame.waiting:
                self._descend(frame, frame.waiting.pop())
                return None
            if not self._settled(frame):
                return None
            node: Node = Directory(frame.nodes)
        except _DirectoryDeniedError as error:
            node = self._denied(frame, error)
        return self._pop(frame, node)

    # Directories

    def _push(self, path: bytes, fd: int, outer: RuleChain) -> None:
        identity = StatIdentity.of(os.fstat(fd))
        self.leaves.trust.of_directory(fd, identity.device)
        frame = Frame(path, fd, identity, outer, outer)
        self._stack.append(frame)
        save_descriptors(self._stack)
        try:
            self._look_at(frame, self._list(frame))
        except _DirectoryDeniedError as error:
            self._pop(frame, self._denied(frame, error))

    def _descend(self, frame: Frame, name: bytes) -> None:
        path = frame.join(name)
        try:
            fd = os.open(name, DIRECTORY_FLAGS, dir_fd=frame.fd)
        except OSError as error:
            if error.errno in _GONE_ERRORS or error.errno in _NOT_A_DIRECTORY_ERRORS:
                frame.missing.add(name)
            elif error.errno in _DENIED_ERRORS:
                frame.nodes[name] = unreadable_leaf(EntryType.DIRECTORY)
                self.leaves.unreadable.add(path)
            else:
                raise _cannot("open the directory", path, error) from error
            return
        self._push(path, fd, frame.chain)

    def _denied(self, frame: Frame, error: Exception) -> Leaf:
        if not frame.path:
            raise WorkspaceError("the workspace may not be searched: let the host do so") from error
        self.leaves.unreadable.add(frame.path)
        return unreadable_leaf(EntryType.DIRECTORY)

    def _pop(self, frame: Frame, node: Node) -> Directory | None:
        self._stack.pop()
        if not self._stack:
            frame.close()
            return node if isinstance(node, Directory) else None
        parent = self._stack[-1]
        if parent.fd < 0:
            reopen(self._stack, frame)
            if parent.fd < 0:
                parent.waiting.clear()
                self._give_up(parent)
        frame.close()
        parent.nodes[frame.name] = node
        return None

    def _give_up(self, frame: Frame) -> None:
        frame.given_up = True
        self.leaves.unstable.add(frame.path or ROOT_NAME)

    # Listings

    def _list(self, frame: Frame) -> Listing:
        try:
            frame.identity = StatIdentity.of(os.fstat(frame.fd))
            with os.scandir(frame.fd) as entries:
                return {
                    os.fsencode(entry.name): (entry.inode(), entry.is_dir(follow_symlinks=False))
                    for entry in entries
                }
        except OSError as error:
            if error.errno in _GONE_ERRORS:
                return {}
            if error.errno in _DENIED_ERRORS:
                raise _DirectoryDeniedError from error
            raise _cannot("list", frame.path, error) from error

    def _settled(self, frame: Frame) -> bool:
        """Return whether the directory is as it was listed; else look at what differs."""
        if frame.given_up or self._surely_unchanged(frame):
            return True
        listing = self._list(frame)
        changed = {name: entry for name, entry in listing.items() if frame.listing.get(name) != entry}
        changed |= {name: listing[name] for name in frame.missing if name in listing}
        gone = frame.listing.keys() - listing.keys()
        frame.missing.clear()
        if not changed and not gone:
            return True
        frame.rounds += 1
        if frame.rounds >= MAX_ROUNDS:
            self._give_up(frame)
        for name in gone | changed.keys():
            frame.nodes.pop(name, None)
        if RULES_NAME in changed or RULES_NAME in gone:
            # Other rules may hold for every name in here.
            frame.nodes.clear()
            changed = listing
        self._look_at(frame, listing, changed)
        return False

    def _surely_unchanged(self, frame: Frame) -> bool:
        return (
            not frame.missing
            and self.leaves.trust.of_directory(frame.fd, frame.identity.device)
            and is_quiet_since(frame.identity, self._options.start_ns)
            and StatIdentity.of(os.fstat(frame.fd)) == frame.identity
        )

    def _look_at(self, frame: Frame, listing: Listing, names: Listing | None = None) -> None:
        frame.listing = listing
        names = listing if names is None else names
        if RULES_NAME in names or names is listing:
            self._take_rules(frame)
        for name, (_, is_dir) in names.items():
            if name not in frame.nodes:
                self._visit(frame, name, is_dir)

    # Rules

    def _take_rules(self, frame: Frame) -> None:
        policy = self._options.policy
        frame.chain = frame.outer
        if policy is not None:
            rules = policy.rules_in(frame.path)
            frame.chain = frame.outer if rules is None else frame.outer.enter(rules)
        elif RULES_NAME in frame.listing:
            self._read_rules(frame)

    def _read_rules(self, frame: Frame) -> None:
        path = frame.join(RULES_NAME)
        try:
            status = os.stat(RULES_NAME, dir_fd=frame.fd, follow_symlinks=False)
        except OSError:
            # Gone, or the directory may not be searched: for the look at its entries to say.
            self.rules.pop(path, None)
            return
        try:
            content = read_small(frame.fd, RULES_NAME, MAX_RULES_BYTES)
        except EntryChangedError as error:
            raise _bad_rules(path, "is not a regular file that holds still") from error
        except FileNotFoundError:
            self.rules.pop(path, None)
            return
        except OSError as error:
            raise _bad_rules(path, f"cannot be read ({error.strerror})") from error
        if content is None:
            raise _bad_rules(path, f"is larger than {MAX_RULES_BYTES} bytes")
        self._rule_bytes += len(content)
        if self._rule_bytes > MAX_RULES_BYTES:
            raise _bad_rules(path, f"brings the rules to more than {MAX_RULES_BYTES} bytes")
        file = RuleFile.read(path, content)
        self.rules[path] = file
        frame.chain = frame.outer.enter(file.rules)
        # From the very bytes that the rules were read from, so that digest and policy cannot disagree.
        entry_type = EntryType.EXECUTABLE if status.st_mode & stat.S_IXUSR else EntryType.FILE
        frame.nodes[RULES_NAME] = Leaf(entry_type, self.leaves.hash(content))

    # Entries

    def _visit(self, frame: Frame, name: bytes, is_dir: bool) -> None:
        """Record an entry, or put it on the list of subdirectories to walk."""
        path = frame.join(name)
        for _ in range(MAX_LOOKS):
            if not self._counts(frame, path, name, is_dir):
                return
            try:
                status = os.stat(name, dir_fd=frame.fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) != is_dir:
                    is_dir = not is_dir
                    continue
                if is_dir and len(path) > MAX_PATH_BYTES:
                    frame.nodes[name] = unreadable_leaf(EntryType.DIRECTORY)
                    self.leaves.unreadable.add(path)
                elif is_dir:
                    frame.waiting.append(name)
                else:
                    frame.nodes[name] = self.leaves.read(frame.fd, path, name, status)
                return
            except EntryChangedError:
                continue
            except OSError as error:
                if error.errno in _DENIED_ERRORS:
                    raise _DirectoryDeniedError from error
                if error.errno not in _GONE_ERRORS:
                    raise _cannot("read", path, error) from error
                frame.missing.add(name)
                return
        frame.nodes[name] = unreadable_leaf(EntryType.FILE)
        self.leaves.unreadable.add(path)
        self.leaves.unstable.add(path)

    def _counts(self, frame: Frame, path: bytes, name: bytes, is_dir: bool) -> bool:
        verdict = frame.chain.verdict(path, name, is_dir=is_dir)
        if verdict is Verdict.RULE:
            self.ignored_by_rule = True
        return verdict is Verdict.KEPT and (is_dir or not self._options.rules_only)


def _cannot(what: str, path: bytes, error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"cannot {what} {escape_path(path or ROOT_NAME)}: {error.strerror}; mend or ignore it", path=path
    )


def _bad_rules(path: bytes, what: str) -> IgnoreRulesError:
    return IgnoreRulesError(
        f"{escape_path(path)} {what}, so what it ignores is unknown: mend or remove it",
        path=path,
    )

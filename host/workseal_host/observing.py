"""Looking at the workspace on behalf of the pipeline: scan, scheme, digest.

Scans run in a worker thread, one at a time. Every look begins with the proof
that the root is still the directory that was opened.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from workseal.paths import escape_path
from workseal_host.coordination.live import DigestReport
from workseal_host.execution.file_tool import run_to_end
from workseal_host.ledger.model import WorkspaceState
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.model import Directory, count_entries
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner, ScanResult
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest


@dataclass(frozen=True, slots=True)
class View:
    """The workspace at one moment, under one scheme.

    Attributes:
        scan: what the scan found.
        scheme: the scheme of ``digest``.
        tree: the tree as the scheme sees it.
        digest: hex digest of the workspace.
        entries: how many entries ``tree`` has.
    """

    scan: ScanResult
    scheme: DigestScheme
    tree: Directory
    digest: str
    entries: int

    @classmethod
    def of(cls, scan: ScanResult, scheme: DigestScheme) -> View:
        """Return what a scheme sees in a scan. Costs as much as the tree is large: call it in a thread.

        Raises:
            DigestSchemeError: the scheme cannot represent the tree.
        """
        tree = project(scan.tree, scheme)
        return cls(scan, scheme, tree, workspace_digest(tree, scheme).hex(), count_entries(tree))

    @property
    def policy(self) -> IgnorePolicy:
        """The ignore rules that were used."""
        return self.scan.policy

    @property
    def state(self) -> WorkspaceState:
        """The form that the ledger keeps."""
        return WorkspaceState(str(self.scheme), self.tree.digest, self.policy.digest, self.policy.to_bytes())

    def report(self) -> DigestReport:
        """Return what callers hear of it."""
        return DigestReport(
            scheme=str(self.scheme),
            digest=self.digest,
            scan=str(self.scan.level),
            entries=self.entries,
            unreadable=tuple(escape_path(path) for path in self.scan.unreadable),
            unstable=tuple(escape_path(path) for path in self.scan.unstable),
            policy_digest=self.policy.digest,
        )


class Observer:
    """Look at one workspace.

    Args:
        root: the opened workspace.
        scanner: how it is scanned.
        scheme: scheme of the digests in receipts.
        level: scan level where none is asked for.
    """

    def __init__(self, root: WorkspaceRoot, scanner: Scanner, scheme: DigestScheme, level: ScanLevel) -> None:
        self.root = root
        self.scheme = scheme
        self.level = level
        self._scanner = scanner
        self._scanning = asyncio.Lock()

    async def look(
        self,
        *,
        policy: IgnorePolicy | None = None,
        level: ScanLevel | None = None,
        scheme: DigestScheme | None = None,
    ) -> View:
        """Scan the workspace.

        Args:
            policy: rules to use in place of those that are in force now.
            level: scan level; None for the host's.
            scheme: digest scheme; None for the host's.

        Raises:
            WorkspaceError: it cannot be observed.
        """
        async with self._scanning:
            how = (policy, level or self.level, scheme or self.scheme)
            # To its end: scans of callers that went away would pile up and take every thread.
            return await run_to_end(lambda: self._look(*how))

    def _look(self, policy: IgnorePolicy | None, level: ScanLevel, scheme: DigestScheme) -> View:
        self.root.check()
        builtin_only = scheme is DigestScheme.NONOKA_1
        scan = self._scanner.scan(level, policy=policy, builtin_only=builtin_only)
        if scan.unstable:
            # Something is being written this moment. Once more, and what does not hold still then is listed.
            scan = self._scanner.scan(level, policy=policy, builtin_only=builtin_only)
        return View.of(scan, scheme)

    def stop(self) -> None:
        """End the scan that runs, and every later one: the host cannot wait for it."""
        self._scanner.stop()

    async def policy_now(self) -> IgnorePolicy:
        """Return the ignore rules that are in force now.

        Raises:
            WorkspaceError: they cannot be read.
        """
        if self.scheme is DigestScheme.NONOKA_1:
            return IgnorePolicy.nonoka()
        async with self._scanning:
            return await run_to_end(self._scanner.read_policy)

    async def policy_after(self, view: View) -> IgnorePolicy:
        """Return the ignore rules that are in force after a view that was taken under given ones.

        Raises:
            WorkspaceError: they cannot be read.
        """
        # The tree holds every rules file, so that a second walk is only needed where one of them changed.
        return await self.policy_now() if view.scan.rules_changed else view.policy

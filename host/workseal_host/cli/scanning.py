"""What `digest`, `manifest` and `diff` share: looking at a directory without a host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import click

from workseal.errors import WorksealError
from workseal.paths import escape_path
from workseal_host.cli.progress import Waiting
from workseal_host.workspace.manifest import ManifestHeader, count_listed
from workseal_host.workspace.model import Directory
from workseal_host.workspace.reading import Hash
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner, ScanResult
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest

scheme_option = click.option(
    "--scheme",
    type=click.Choice([scheme.value for scheme in DigestScheme]),
    help="Digest scheme.  [default: workseal-tree/1]",
)


class InputError(click.ClickException):
    """The input cannot be used; exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Look:
    """A directory as one scheme sees it.

    Attributes:
        root: real path in the escaped form.
        scheme: the scheme of ``tree`` and ``digest``.
        scan: what the scan found.
        tree: projected onto the scheme.
        digest: 32 bytes.
    """

    root: str
    scheme: DigestScheme
    scan: ScanResult
    tree: Directory
    digest: bytes

    def header(self) -> ManifestHeader:
        """Return the header of the manifest of this directory."""
        return ManifestHeader(
            scheme=self.scheme,
            digest=self.digest,
            policy_digest=self.scan.policy.digest,
            entries=count_listed(self.tree, self.scheme),
            unreadable=tuple(self.scan.unreadable),
            unstable=tuple(self.scan.unstable),
        )


def look(
    directory: bytes,
    scheme: DigestScheme,
    level: ScanLevel,
    *,
    new_hash: Callable[[], Hash] = hashlib.sha256,
) -> Look:
    """Scan a directory by the rules that lie in it.

    Args:
        directory: path of the directory.
        scheme: what to project the tree onto.
        level: scan level.
        new_hash: makes the hash of contents.

    Raises:
        InputError: the directory cannot be observed under that scheme.
    """
    try:
        with WorkspaceRoot.open(directory) as root, Waiting(f"scanning {root.path_text}"):
            scanner = Scanner(root, new_hash=new_hash)
            scan = scanner.scan(level, builtin_only=scheme is DigestScheme.NONOKA_1)
            tree = project(scan.tree, scheme)
            return Look(root.path_text, scheme, scan, tree, workspace_digest(tree, scheme))
    except WorksealError as error:
        raise InputError(str(error)) from error


def warn_unsettled(unreadable: tuple[bytes, ...], unstable: tuple[bytes, ...]) -> None:
    """Say on stderr which paths leave the answer uncertain."""
    for words, paths in (("could not be read", unreadable), ("would not hold still", unstable)):
        for path in paths:
            click.echo(f"workseal: {escape_path(path)} {words}", err=True)

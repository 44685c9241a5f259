"""What `digest`, `manifest` and `diff` share: looking at a directory without a host."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from workseal.errors import WorksealError
from workseal.paths import escape_path
from workseal_host.cli.progress import Waiting
from workseal_host.config_file import has_config
from workseal_host.errors import ConfigError
from workseal_host.workspace.limits import DEFAULT_MAX_FILE_BYTES, ScanLimits
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


_Command = TypeVar("_Command", bound=Callable[..., Any])


def config_options(command: _Command) -> _Command:
    """Add ``--config`` and ``--no-config``."""
    options = [
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="workseal.toml, whose `ignore` counts as it does for a host.  "
            "[default: $WORKSEAL_CONFIG or the one in the configuration directory]",
        ),
        click.option("--no-config", is_flag=True, help="Go by the rules in the directory alone."),
    ]
    for option in options:
        command = option(command)
    return command


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


@dataclass(frozen=True, slots=True)
class ConfigChoice:
    """Where ignore patterns of a host's configuration come from, by the options of a command.

    Args:
        file: what ``--config`` names; None for the usual place.
        none: whether there are to be none.

    Raises:
        click.UsageError: both were given.
    """

    file: Path | None = None
    none: bool = False

    def __post_init__(self) -> None:
        if self.file is not None and self.none:
            raise click.UsageError("--config and --no-config exclude each other; leave out one of them")

    def rules(self, directory: bytes) -> tuple[tuple[str, ...], int]:
        """Return the ignore patterns and the largest file that a host of this user goes by in a directory.

        Raises:
            InputError: the configuration cannot be used; one that lies in the directory never is.
        """
        if self.none or (self.file is None and not has_config()):
            return (), DEFAULT_MAX_FILE_BYTES
        from workseal_host.config import load_config  # noqa: PLC0415 - loads all tools

        try:
            config = load_config(str(self.file) if self.file else None, workspace=directory)
        except ConfigError as error:
            key = f"{error.key}: " if error.key else ""
            raise InputError(f"{key}{error}; or leave it aside with --no-config") from error
        return config.ignore, config.max_file_bytes


def _scanning(root: WorkspaceRoot, limits: ScanLimits) -> Waiting:
    started = time.monotonic()

    def so_far() -> str:
        counts = limits.counts
        rate = counts.read_bytes / max(time.monotonic() - started, 0.001)
        return f"{counts.files:,} files, {readable(counts.read_bytes)}, {readable(rate)}/s"

    return Waiting(f"scanning {root.path_text}", so_far=so_far)


def readable(size: float) -> str:
    """Return a number of bytes as people read it, such as ``1.5 GB``."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while size >= 1000 and power < len(units) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.1f} {units[power]}" if power else f"{size:.0f} B"


def look(
    directory: bytes,
    scheme: DigestScheme,
    level: ScanLevel,
    *,
    config: ConfigChoice,
    new_hash: Callable[[], Hash] = hashlib.sha256,
) -> Look:
    """Scan a directory by the rules that a host of this user would go by.

    Args:
        directory: path of the directory.
        scheme: what to project the tree onto.
        level: scan level.
        config: where patterns come from besides the rules that lie in it.
        new_hash: makes the hash of contents.

    Raises:
        InputError: the directory cannot be observed under that scheme, or the configuration not be used.
    """
    patterns, max_file_bytes = config.rules(directory)
    # A person can wait, or interrupt: only a host needs a limit in time.
    limits = ScanLimits.of(max_file_bytes=max_file_bytes, timeout_s=math.inf)
    if scheme is DigestScheme.NONOKA_1:
        patterns = ()
    try:
        with WorkspaceRoot.open(directory) as root, _scanning(root, limits):
            scanner = Scanner(root, config_patterns=patterns, limits=limits, new_hash=new_hash)
            scan = scanner.scan(level, builtin_only=scheme is DigestScheme.NONOKA_1)
            tree = project(scan.tree, scheme)
            return Look(root.path_text, scheme, scan, tree, workspace_digest(tree, scheme))
    except WorksealError as error:
        raise InputError(str(error)) from error


def warn_unsettled(unreadable: tuple[bytes, ...], unstable: tuple[bytes, ...]) -> None:
    """Say on stderr which paths leave the answer uncertain."""
    for words, paths in (("could not be read", unreadable), ("would not hold still", unstable)):
        for path in paths:
            click.echo(f"workseal: warning: {escape_path(path)} {words}", err=True)

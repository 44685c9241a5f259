"""`workseal manifest`: every entry of a directory with its own hash."""

from __future__ import annotations

import click

from workseal_host.cli.scanning import look, scheme_option, warn_unsettled
from workseal_host.workspace.manifest import write_manifest
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme


@click.command("manifest")
@click.argument("directory", type=click.Path(path_type=bytes), default=b".")
@scheme_option
@click.option("--json", is_flag=True, expose_value=False, help="JSON Lines; the only form there is.")
def manifest_command(directory: bytes, scheme: str | None) -> None:
    """Print the manifest of DIRECTORY (the current one by default) as JSON Lines.

    The first line is a header with the digest, then comes one line per entry.
    `workseal diff` reads what was saved.
    """
    seen = look(directory, DigestScheme(scheme or DigestScheme.WORKSEAL_TREE_1), ScanLevel.STAT)
    header = seen.header()
    for line in write_manifest(header, seen.tree):
        click.echo(line)
    warn_unsettled(header.unreadable, header.unstable)

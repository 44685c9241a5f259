"""`workseal manifest`: every entry of a directory with its own hash."""

from __future__ import annotations

from pathlib import Path

import click

from workseal_host.cli.scanning import ConfigChoice, config_options, look, scheme_option, warn_unsettled
from workseal_host.workspace.manifest import write_manifest
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme


@click.command("manifest")
@click.argument("directory", type=click.Path(path_type=bytes), default=b".")
@scheme_option
@config_options
@click.option("--json", is_flag=True, expose_value=False, help="JSON Lines; the only form there is.")
def manifest_command(
    directory: bytes, scheme: str | None, config_file: Path | None, *, no_config: bool
) -> None:
    """Print the manifest of DIRECTORY (the current one by default) as JSON Lines.

    The first line is a header with the digest, then comes one line per entry.
    `workseal diff` reads what was saved.
    """
    chosen = DigestScheme(scheme or DigestScheme.WORKSEAL_TREE_1)
    seen = look(directory, chosen, ScanLevel.STAT, config=ConfigChoice(config_file, no_config))
    header = seen.header()
    for line in write_manifest(header, seen.tree):
        click.echo(line)
    warn_unsettled(header.unreadable, header.unstable)

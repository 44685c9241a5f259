"""`workseal verify` as the host's command line lists it; the client's own code does the work."""

from __future__ import annotations

import sys

import click

from workseal.cli import main


@click.command(
    "verify",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def verify_command(arguments: tuple[str, ...]) -> None:
    """Verify receipts against given or pinned keys."""
    sys.exit(main(["verify", *arguments]))

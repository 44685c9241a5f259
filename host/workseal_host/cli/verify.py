"""`workseal verify` as the host's command line lists it; the client's own code does the work."""

from __future__ import annotations

import argparse
import re
import sys

import click
from click.shell_completion import CompletionItem

from workseal.cli import main
from workseal.cli.verify import add_parser


class _VerifyCommand(click.Command):
    """A command that knows its options for completion alone: the client parses them."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the client's options, or files."""
        if not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        commands = argparse.ArgumentParser(prog="workseal").add_subparsers()
        add_parser(commands)
        options = dict.fromkeys(re.findall(r"--[a-z-]+", commands.choices["verify"].format_usage()))
        return [CompletionItem(name) for name in options if name.startswith(incomplete)]


@click.command(
    "verify",
    cls=_VerifyCommand,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def verify_command(arguments: tuple[str, ...]) -> None:
    """Verify receipts against given or pinned keys."""
    sys.exit(main(["verify", *arguments]))

"""The `workseal` command with the host installed: one module per verb, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from workseal_host.version import host_version

# Verb: (module, attribute, one line for `--help`). Listing verbs must not import them.
VERBS: Final = {
    "serve": ("serve", "serve_command"),
    "run": ("run", "run_command"),
    "exec": ("exec", "exec_command"),
    "digest": ("digest", "digest_command"),
    "manifest": ("manifest", "manifest_command"),
    "diff": ("diff", "diff_command"),
    "verify": ("verify", "verify_command"),
    "keys": ("keys", "keys_group"),
    "receipts": ("receipts", "receipts_group"),
    "status": ("status", "status_command"),
    "healthcheck": ("status", "healthcheck_command"),
    "validate": ("validate", "validate_command"),
    "completion": ("completion", "completion_command"),
}


class VerbGroup(click.Group):
    """A group that imports a verb only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in their order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one verb; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, attribute = VERBS[cmd_name]
        command = getattr(import_module(f"workseal_host.cli.{module}"), attribute)
        return command if isinstance(command, click.Command) else None


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(host_version(), prog_name="workseal")
def app() -> None:
    """Run an agent's tools next to the workspace, and sign what they changed.

    Results go to stdout, everything else to stderr. Exit codes: 0 yes or done,
    1 a negative answer, 2 usage or unreadable input, 3 host unreachable.
    """

"""The `workseal` command with the host installed: one module per verb, loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from workseal_host.cli.boundary import ReaderGoneError, guarded


class Verb(NamedTuple):
    """Where a verb is, and its line in `workseal --help`: listing verbs must not import them."""

    module: str
    attribute: str
    help: str


VERBS: Final = {
    "serve": Verb("serve", "serve_command", "Serve one workspace until told to stop."),
    "run": Verb("run", "run_command", "Run a command and attest what it changed; needs no daemon."),
    "exec": Verb("exec", "exec_command", "Run one tool on the running host and verify its receipt."),
    "digest": Verb("digest", "digest_command", "Print or check the digest of a directory."),
    "manifest": Verb("manifest", "manifest_command", "List every entry of a directory with its hash."),
    "diff": Verb("diff", "diff_command", "Compare two directories or saved manifests."),
    "verify": Verb("verify", "verify_command", "Verify receipts against given or pinned keys."),
    "keys": Verb("keys", "keys_group", "Show and rotate keys; pin those of others."),
    "receipts": Verb("receipts", "receipts_group", "List and show the receipts of a workspace; audit them."),
    "status": Verb("status", "status_command", "Show the host of a workspace."),
    "healthcheck": Verb("status", "healthcheck_command", "Ask whether the host serves."),
    "validate": Verb("validate", "validate_command", "Check workseal.toml as `serve` loads it."),
    "completion": Verb("completion", "completion_command", "Print a shell's completion script."),
}


class VerbGroup(click.Group):
    """A group that imports a verb only when it is used, and ends in one place."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in their order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one verb; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        command = getattr(import_module(f"workseal_host.cli.{verb.module}"), verb.attribute)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs without loading them, and the options."""
        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items()]
        found = [item for item in verbs if item.value.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb that was asked for."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Click would make a negative answer of it.
            raise ReaderGoneError from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line, and exit."""
        given = sys.argv[1:] if args is None else list(args)
        inner = super().main
        if not standalone_mode:
            return inner(given, prog_name, complete_var, False, **extra)
        verb = next((word for word in given if not word.startswith("-")), "")
        sys.exit(guarded(verb, lambda: inner(given, prog_name, complete_var, False, **extra)))


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from workseal_host.version import host_version  # noqa: PLC0415 - reading it takes longer than all else

        click.echo(f"workseal, version {host_version()}")
        context.exit()


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def app() -> None:
    """Run an agent's tools next to the workspace, and sign what they changed.

    Results go to stdout, everything else to stderr. Exit codes: 0 yes or done,
    1 a negative answer, 2 usage or unreadable input, 3 host unreachable. `run` and
    `exec` pass the tool's own code through; 125 is a failure of Workseal.
    """

"""`workseal completion`: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: workseal completion bash > ~/.local/share/bash-completion/completions/workseal
    zsh:  workseal completion zsh > a file `_workseal` in a directory of $fpath
    fish: workseal completion fish > ~/.config/fish/completions/workseal.fish
    """
    from workseal_host.cli.app import app  # noqa: PLC0415 - the group that holds this verb

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(completer(app, {}, "workseal", "_WORKSEAL_COMPLETE").source())

"""`workseal validate`: check the configuration exactly as `serve` loads it."""

from __future__ import annotations

from pathlib import Path

import click

from workseal.cli.output import safe
from workseal_host.cli.common import echo_json, json_option
from workseal_host.config import load_config
from workseal_host.errors import ConfigError


@click.command("validate")
@click.argument("config_file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--workspace",
    "-C",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The workspace to be served: a file in there is refused.",
)
@json_option
def validate_command(config_file: Path | None, workspace: Path | None, as_json: bool) -> None:
    """Check workseal.toml: FILE, else $WORKSEAL_CONFIG, else the one in the configuration directory.

    Exit 0 where it is good, 2 with the key and what to do where it is not.
    """
    try:
        config = load_config(
            str(config_file) if config_file else None, workspace=str(workspace) if workspace else None
        )
    except ConfigError as error:
        if as_json:
            echo_json({"valid": False, "key": error.key or None, "message": str(error)})
        raise
    tools = list(config.registry().names())
    if as_json:
        echo_json({"valid": True, "file": config.source, "tools": tools})
        return
    where = safe(config.source or "no file, the defaults")
    click.echo(f"{where}: good, {len(tools)} tools ({', '.join(tools)})")

"""`workseal validate`: check the configuration exactly as `serve` loads it."""

from __future__ import annotations

from pathlib import Path

import click

from workseal_host.cli.common import maps_errors
from workseal_host.config import load_config


@click.command("validate")
@click.argument("config_file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--workspace", type=click.Path(exists=True, file_okay=False, path_type=Path))
@maps_errors
def validate_command(config_file: Path | None, workspace: Path | None) -> None:
    """Check workseal.toml. Exit 0 where it is good, 2 with the key and what to do where it is not."""
    config = load_config(
        str(config_file) if config_file else None, workspace=str(workspace) if workspace else None
    )
    registry = config.registry()
    click.echo(f"good: {len(registry.names())} tools ({', '.join(registry.names())})")

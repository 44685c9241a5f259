"""The `workseal` command: `verify` and the pins with the client alone, the rest with the host."""

from __future__ import annotations

from workseal.cli.main import main

__all__ = ["main"]

"""Who this host is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

HOST_NAME: Final = "workseal-host"


def host_version() -> str:
    """Return the version of the installed distribution; ``0`` where none is installed."""
    try:
        return version("workseal")
    except PackageNotFoundError:
        return "0"

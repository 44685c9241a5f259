"""Where the configuration is. Apart from reading it, which loads all tools."""

from __future__ import annotations

import os
from collections.abc import Mapping

CONFIG_VARIABLE = "WORKSEAL_CONFIG"


def default_config_path(environment: Mapping[str, str] = os.environ) -> str:
    """Return ``$XDG_CONFIG_HOME/workseal/workseal.toml``."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "workseal", "workseal.toml")


def has_config(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether there is anything to load where no file is named."""
    return bool(environment.get(CONFIG_VARIABLE)) or os.path.lexists(default_config_path(environment))

"""Which of the host's environment variables a tool sees: an allow-list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ALLOWED_NAMES = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"}
)
ALLOWED_PREFIX = "LC_"


def allowed_environment(source: Mapping[str, str], declared_names: Iterable[str] = ()) -> dict[str, str]:
    """Return what a tool sees of an environment.

    Args:
        source: the host's environment.
        declared_names: names that the configuration adds to the allow-list.

    Returns:
        The allowed variables that are set in ``source``; everything else, secrets included, is left out.
    """
    allowed = ALLOWED_NAMES | frozenset(declared_names)
    return {
        name: value for name, value in source.items() if name in allowed or name.startswith(ALLOWED_PREFIX)
    }

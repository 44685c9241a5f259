"""Environments for processes that tests start."""

from __future__ import annotations

import os


def unmeasured() -> dict[str, str]:
    """Return this process's environment without what makes every Python process load coverage.

    For tests of what a process loads: coverage brings modules of its own.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}

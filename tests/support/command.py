"""The `workseal` command as a process: run in a clean environment, never reading this machine's own state."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0


@dataclass
class Command:
    """How to run `workseal` in one test.

    Attributes:
        base: a directory of the test's own, for home and state.
        runtime_dir: short, because a socket's path must be.
        environment: added to a clean environment.
    """

    base: Path
    runtime_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.base / "state"

    def clean_environment(self) -> dict[str, str]:
        """Return an environment without this machine's configuration in it."""
        kept = {
            name: os.environ[name] for name in os.environ if name == "PATH" or name.startswith("COVERAGE_")
        }
        home = self.base / "home"
        home.mkdir(exist_ok=True)
        return {
            **kept,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "WORKSEAL_STATE_DIR": str(self.state),
            "XDG_RUNTIME_DIR": str(self.runtime_dir),
            **self.environment,
        }

    def argv(self, *arguments: str | bytes | Path) -> list[bytes]:
        """Return the whole command line."""
        return [os.fsencode(word) for word in (sys.executable, "-m", "workseal_host", *arguments)]

    def __call__(self, *arguments: str | bytes | Path, **how: Any) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end; output is captured unless told otherwise."""
        how = {"stdin": subprocess.DEVNULL, **how}
        if "input" in how:
            how.pop("stdin")
        if "stdout" not in how and "stderr" not in how:
            how["capture_output"] = True
        return subprocess.run(
            self.argv(*arguments), env=self.clean_environment(), timeout=TIMEOUT_S, check=False, **how
        )


def predicate_of(receipt: Path) -> dict[str, Any]:
    """Return what a receipt file states, without verifying it."""
    statement = json.loads(base64.b64decode(json.loads(receipt.read_bytes())["payload"]))
    return dict(statement["predicate"])

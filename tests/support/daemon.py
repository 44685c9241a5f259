"""A real host process for tests: started, spoken to over its socket, ended with the test."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workseal.client import HostClient
from workseal.receipt.keys import PublicKey
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class DaemonFailedError(AssertionError):
    """The host did not come up; the message holds its exit code and log."""


@dataclass
class Daemon:
    """One `workseal serve` process.

    Attributes:
        workspace: what it serves.
        state: its state directory.
        config: text of its configuration file; None for none.
        environment: added to a clean environment.
        arguments: further command line arguments.
    """

    workspace: Path
    state: Path
    config: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    # Short, because a socket's path must be.
    runtime_dir: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ws-")))
    ready: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """Where its stderr goes."""
        return self.state.parent / f"{self.state.name}.log"

    def command(self) -> list[str]:
        """Return its command line."""
        command = [sys.executable, "-m", "workseal_host", "serve", "--workspace", str(self.workspace)]
        command += ["--state-dir", str(self.state), *self.arguments]
        if self.config is not None:
            file = self.state.parent / f"{self.state.name}-config" / "workseal.toml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(self.config)
            command += ["--config", str(file)]
        return command

    def clean_environment(self) -> dict[str, str]:
        """Return an environment without this machine's configuration in it."""
        kept = {
            name: os.environ[name]
            for name in os.environ
            if name in ("PATH", "LANG") or name.startswith("COVERAGE_")
        }
        home = self.state.parent / "home"
        home.mkdir(exist_ok=True)
        return {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(self.runtime_dir), **self.environment}

    def start(self) -> Daemon:
        """Start it and wait for its ready line."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.clean_environment(),
            )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.kill()
            raise DaemonFailedError(f"exit {self.process.returncode}: {self.log_file.read_text()}")
        self.ready = json.loads(line)
        return self

    def stop(self) -> int:
        """End it with SIGTERM and return its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._close()
        return code

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            self._close()

    def remove(self) -> None:
        """End it, and remove what lies outside the test's own directory."""
        # Asked first: a process that is killed leaves no coverage data behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop()
        self.kill()
        shutil.rmtree(self.runtime_dir, ignore_errors=True)

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def client(self) -> HostClient:
        """Return a client for it."""
        return HostClient(self.ready["socket"], token_file=self.ready["token_file"])

    def trust(self) -> MemoryTrustStore:
        """Return its public key, read from its key file, as a pin."""
        public = PublicKey.from_pem(Path(self.ready["public_key_file"]).read_text())
        return MemoryTrustStore(TrustState(pins=(Pin(public),)))


DaemonFactory = Callable[..., Daemon]


def requires(program: str) -> pytest.MarkDecorator:
    """Skip where a program is missing, except under CI, where that is a failure."""
    missing = shutil.which(program) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"{program} is not installed")

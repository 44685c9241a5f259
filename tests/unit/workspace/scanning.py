"""Short words for tests that scan."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workseal_host.workspace.diff import diff
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.model import Directory
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner, ScanResult
from workseal_host.workspace.statcache import file_clock_ns

NOBODY = 65534
REPOSITORY = Path(__file__).resolve().parents[3]


def scan(path: Path, level: ScanLevel = ScanLevel.FULL, policy: IgnorePolicy | None = None) -> ScanResult:
    """Scan once, by what lies in the directory."""
    with WorkspaceRoot.open(path) as root:
        return Scanner(root).scan(level, policy)


def words(before: Directory, after: Directory) -> list[str]:
    """Return a diff as ``kind path``."""
    return [
        f"{change.kind} {change.path.decode('utf-8', 'surrogateescape')}" for change in diff(before, after)
    ]


def wait_for_tick() -> None:
    """Wait until the clock that stamps files has moved on."""
    now = file_clock_ns()
    while file_clock_ns() == now:
        time.sleep(0.001)


class ActingHash:
    """A SHA-256 that does something the first times it is given bytes: a race made certain."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._hash = hashlib.sha256()
        self._act = act

    def update(self, data: bytes, /) -> None:
        self._hash.update(data)
        self._act()

    def digest(self) -> bytes:
        return self._hash.digest()


class CountingHash:
    """Makes SHA-256 hashes and counts how many were made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> ActingHash:
        self.made += 1
        return ActingHash(lambda: None)


def run_as_nobody(code: str, *arguments: str, imports: str = "") -> str:
    """Run Python as a user without rights; as an ordinary user, as oneself.

    The modules are imported before the rights go, because the user may not be able to read them.
    """
    drop = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})" if os.getuid() == 0 else "pass"
    script = (
        "import os, sys\n"
        "from workseal_host.workspace.root import WorkspaceRoot\n"
        "from workseal_host.workspace.scan import Scanner, ScanLevel\n"
        "from workseal_host.workspace.manifest import iter_entries\n"
        "from workseal_host.errors import *\n"
        f"{imports}\n{drop}\n" + textwrap.dedent(code)
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if answer.returncode:
        pytest.fail(answer.stderr)
    return answer.stdout


@contextmanager
def reachable_directory() -> Iterator[Path]:
    """Make a directory that the user without rights can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="workseal-test-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def let_nobody_in(path: Path) -> None:
    """Give a :func:`reachable_directory` and all in it to the user without rights."""
    if os.getuid() != 0:
        return
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)

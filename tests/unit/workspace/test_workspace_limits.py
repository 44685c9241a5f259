"""What a scan may cost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from workseal_host.errors import WorkspaceError
from workseal_host.workspace.limits import ScanLimits
from workseal_host.workspace.model import EntryType, lookup
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner, ScanResult


class Ticks:
    """A clock that moves by one second each time it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def scan(directory: Path, limits: ScanLimits) -> ScanResult:
    with WorkspaceRoot.open(directory) as root:
        return Scanner(root, limits=limits).scan()


def test_a_sparse_file_of_terabytes_is_listed_as_unreadable_and_the_rest_is_read(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(4 * 1024**4)
    (tmp_path / "small").write_text("x")
    found = scan(tmp_path, ScanLimits.of())
    big, small = lookup(found.tree, b"big"), lookup(found.tree, b"small")
    assert found.unreadable == [b"big"]
    assert not found.settled
    assert big is not None
    assert big.type is EntryType.UNREADABLE
    assert small is not None
    assert small.type is EntryType.FILE


@pytest.mark.parametrize(("size", "readable"), [(10, True), (11, False)], ids=["at-the-limit", "above"])
def test_the_limit_is_the_largest_size_that_is_read(tmp_path: Path, size: int, readable: bool) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    assert scan(tmp_path, ScanLimits.of(max_file_bytes=10)).settled is readable


def test_a_scan_that_takes_too_long_says_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)
    limits = ScanLimits(2**40, 5.0, threading.Event(), Ticks())
    with pytest.raises(WorkspaceError, match=r"longer than 5 s and was at f: .*scan_timeout_s"):
        scan(tmp_path, limits)


def test_a_stopped_scanner_observes_nothing_any_more(tmp_path: Path) -> None:
    with WorkspaceRoot.open(tmp_path) as root:
        scanner = Scanner(root)
        scanner.scan()
        scanner.stop()
        with pytest.raises(WorkspaceError, match="stopping"):
            scanner.scan()


def test_a_scan_is_stopped_in_the_middle_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 * 1024**3)
    with WorkspaceRoot.open(tmp_path) as root:
        scanner = Scanner(root, limits=ScanLimits.of(max_file_bytes=2**40))
        timer = threading.Timer(0.2, scanner.stop)
        timer.start()
        with pytest.raises(WorkspaceError, match="stopping"):
            scanner.scan()
        timer.join()

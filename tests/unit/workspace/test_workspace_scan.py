"""Scans: deep, large, moving, refused."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.workspace.scanning import (
    ActingHash,
    let_nobody_in,
    reachable_directory,
    run_as_nobody,
    scan,
    wait_for_tick,
    words,
)
from workseal.paths import escape_path
from workseal_host.errors import IgnoreRulesError, RootReplacedError, WorkspaceError
from workseal_host.workspace import frames, mounts, walk
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.model import Directory, EntryType, count_entries, lookup, unreadable_leaf
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner
from workseal_host.workspace.statcache import file_clock_ns

DEPTH = 3000


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    path.mkdir()
    return path


@pytest.fixture
def reachable() -> Iterator[Path]:
    with reachable_directory() as path:
        yield path


@pytest.fixture
def deep(workspace: Path) -> Iterator[Path]:
    """A chain of directories much deeper than a path can say."""
    fd = os.open(workspace, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir(b"d", dir_fd=fd)
        below = os.open(b"d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open(b"f", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    yield workspace
    # pytest's own removal is recursive and would not get down there.
    subprocess.run(["rm", "-rf", workspace], check=True)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + frames.MAX_OPEN + 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_deep_tree_needs_few_descriptors_and_no_stack(deep: Path) -> None:
    result = scan(deep)
    assert result.settled
    assert result.entries == DEPTH + 1
    assert lookup(result.tree, b"d/" * DEPTH + b"f") is not None


def test_rules_are_read_in_a_deep_tree(deep: Path) -> None:
    with WorkspaceRoot.open(deep) as root:
        assert Scanner(root).read_policy().files == ()


def test_a_directory_at_a_path_longer_than_bearable_is_unreadable(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_PATH_BYTES", 3)
    (workspace / "a" / "b" / "c" / "d").mkdir(parents=True)
    (workspace / "a" / "b" / "file with a long name").write_text("1")
    result = scan(workspace)
    assert result.unreadable == [b"a/b/c"]
    assert lookup(result.tree, b"a/b/c") == unreadable_leaf(EntryType.DIRECTORY)
    assert lookup(result.tree, b"a/b/file with a long name") is not None


def test_a_chain_of_long_names_stays_within_what_a_receipt_can_name(workspace: Path) -> None:
    name = b"\xff" * 255
    fd = os.open(workspace, os.O_RDONLY)
    for _ in range(300):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    result = scan(workspace)
    subprocess.run(["rm", "-rf", workspace], check=True)
    assert len(result.unreadable) == 1
    assert max(len(escape_path(path)) for path, _ in iter_entries(result.tree)) < 4 * 65536


@pytest.mark.parametrize("parents_too", [False, True], ids=["child moved", "parents moved too"])
def test_directory_moved_while_its_parents_were_closed_to_save_descriptors(
    parents_too: bool, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_OPEN", 2)
    (workspace / "a" / "b" / "c" / "d").mkdir(parents=True)
    (workspace / "a" / "b" / "c" / "d" / "f").write_text("1")
    (workspace / "a" / "b" / "z").mkdir()

    def act() -> None:
        if (workspace / "a" / "b" / "c").exists():
            (workspace / "a" / "b" / "c").rename(workspace / "c")
            if parents_too:
                (workspace / "a").rename(workspace.parent / "a")

    with WorkspaceRoot.open(workspace) as root:
        before = set(os.listdir("/dev/fd"))
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
        assert set(os.listdir("/dev/fd")) == before
    # Directories that cannot be found again are gone from here, and the root was listed once more.
    assert result.settled
    assert result.tree == scan(workspace).tree


def test_directory_that_cannot_be_found_again_is_unstable(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_OPEN", 2)
    monkeypatch.setattr(frames, "_open_same", lambda *_: -1)
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    result = scan(workspace)
    assert result.unstable == [b"a"]
    assert result.entries == 3


@pytest.mark.parametrize(
    ("place", "message"),
    [("scandir", "cannot list d"), ("open", "cannot open the directory d"), ("stat", "cannot read f")],
)
def test_error_that_is_no_lack_of_rights_is_refused_and_named(
    place: str, message: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "d").mkdir()
    (workspace / "f").write_text("1")
    inode = (workspace / "d").stat().st_ino
    real = getattr(os, place)

    def failing(what: object, *arguments: object, **options: object) -> object:
        if what == {"open": b"d", "stat": b"f"}.get(place) or (
            isinstance(what, int) and os.fstat(what).st_ino == inode
        ):
            raise OSError(5, "Input/output error")
        return real(what, *arguments, **options)

    monkeypatch.setattr(os, place, failing)
    with WorkspaceRoot.open(workspace) as root, pytest.raises(WorkspaceError, match=message):
        Scanner(root).scan()


@pytest.mark.parametrize(
    ("denied", "expected"),
    [("open", [(b"d", EntryType.UNREADABLE), (b"f", EntryType.UNREADABLE)]), ("scandir", None)],
)
def test_lack_of_rights_is_recorded(
    denied: str,
    expected: list[tuple[bytes, EntryType]] | None,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same as with a user without rights, whoever runs this."""
    (workspace / "d").mkdir()
    (workspace / "f").write_text("1")
    inode = (workspace / "d").stat().st_ino
    real = getattr(os, denied)

    def failing(what: object, *arguments: object, **options: object) -> object:
        if what in (b"d", b"f") if denied == "open" else os.fstat(what).st_ino == inode:  # type: ignore[arg-type]
            raise PermissionError(13, "Permission denied")
        return real(what, *arguments, **options)

    monkeypatch.setattr(os, denied, failing)
    result = scan(workspace)
    assert [(path, node.type) for path, node in iter_entries(result.tree)] == (
        expected or [(b"d", EntryType.UNREADABLE), (b"f", EntryType.FILE)]
    )
    assert result.unreadable == ([b"d", b"f"] if expected else [b"d"])
    assert not result.settled


def test_many_files(workspace: Path) -> None:
    for directory in range(20):
        (workspace / str(directory)).mkdir()
        for number in range(200):
            (workspace / str(directory) / str(number)).touch()
    assert scan(workspace).entries == 20 * 201


def test_no_descriptor_is_left_behind(workspace: Path) -> None:
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "f").write_text("1")
    with WorkspaceRoot.open(workspace) as root:
        before = set(os.listdir("/dev/fd"))
        Scanner(root).scan()
        (workspace / "a" / ".worksealignore").mkdir()
        with pytest.raises(IgnoreRulesError):
            Scanner(root).scan()
        assert set(os.listdir("/dev/fd")) == before


def test_scans_of_two_threads_do_not_mix(workspace: Path) -> None:
    for number in range(50):
        (workspace / str(number)).write_text(str(number))
    expected = scan(workspace).tree
    with WorkspaceRoot.open(workspace) as root:
        scanner, seen = Scanner(root), list[Directory]()
        threads = [threading.Thread(target=lambda: seen.append(scanner.scan().tree)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [expected] * 4


def test_root_replaced_before_the_scan(workspace: Path) -> None:
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        workspace.rename(workspace.parent / "old")
        workspace.mkdir()
        with pytest.raises(RootReplacedError):
            scanner.scan()
        with pytest.raises(RootReplacedError):
            scanner.read_policy()


def test_root_replaced_during_the_scan(workspace: Path) -> None:
    (workspace / "f").write_text("1")

    def act() -> None:
        workspace.rename(workspace.parent / "old")
        workspace.mkdir()

    with WorkspaceRoot.open(workspace) as root, pytest.raises(RootReplacedError):
        Scanner(root, new_hash=lambda: ActingHash(act)).scan()


def test_file_that_grows_without_end_is_read_a_bounded_number_of_times(workspace: Path) -> None:
    file = workspace / "log"
    file.write_bytes(b"x")

    def act() -> None:
        with file.open("ab") as grown:
            grown.write(b"y" * 1000)

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan()
    assert result.unstable == [b"log"]
    assert not result.settled
    assert lookup(result.tree, b"log") is not None


@pytest.mark.parametrize("text", ["22", "2", ""], ids=["longer", "as long", "shorter"])
def test_file_that_changes_once_while_it_is_read_is_read_again(text: str, workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("1")
    wait_for_tick()
    changes = iter([text])

    def act() -> None:
        text = next(changes, None)
        if text is not None:
            file.write_text(text)

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert result.settled
    assert result.tree == scan(workspace).tree


def test_file_replaced_by_rename_while_it_is_read_is_read_again(workspace: Path) -> None:
    (workspace / "a").write_text("old")
    (workspace.parent / "new").write_text("new")

    def act() -> None:
        if (workspace.parent / "new").exists():
            (workspace.parent / "new").rename(workspace / "a")

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert result.tree == scan(workspace).tree


def test_f42_directory_replaced_by_a_link_before_it_is_walked_is_not_followed(workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    for name in ("d", "e"):
        (workspace / name).mkdir()
        (workspace / name / "f").write_text("mine")
    read: list[bytes] = []

    def act() -> None:
        # Whichever of the two is walked first, the other one is waiting.
        for name in ("d", "e"):
            if not (workspace / name).is_symlink():
                (workspace / name).rename(workspace.parent / name)
                (workspace / name).symlink_to(outside)

    class Recording(ActingHash):
        def update(self, data: bytes, /) -> None:
            read.append(data)
            super().update(data)

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: Recording(act)).scan(ScanLevel.FULL)
    assert [(path, node.type) for path, node in iter_entries(result.tree)] == [
        (b"d", EntryType.SYMLINK),
        (b"e", EntryType.SYMLINK),
    ]
    assert b"mine" in read
    assert b"secret" not in read


def test_entry_that_was_away_for_a_moment_is_not_left_out(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("1")
    (workspace / "d").mkdir()
    expected = scan(workspace).tree
    away = {b"a", b"d"}
    real_stat, real_open = os.stat, os.open

    def once_away(path: object) -> None:
        if path in away:
            away.discard(path)  # type: ignore[arg-type]
            raise FileNotFoundError(2, "No such file or directory")

    def stat_(path: object, **options: object) -> os.stat_result:
        if path == b"a":
            once_away(path)
        return real_stat(path, **options)  # type: ignore[arg-type]

    def open_(path: object, *arguments: object, **options: object) -> int:
        if path == b"d":
            once_away(path)
        return real_open(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat_)
    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(mounts, "file_system_type", lambda _fd: "ext4")
    with WorkspaceRoot.open(workspace) as root:
        # A clock that runs ahead, so that nothing but the absence itself asks for another look.
        scanner = Scanner(root, clock_ns=lambda: file_clock_ns() + 10_000_000_000)
        assert scanner.scan().tree == expected
    assert not away


def test_directory_that_never_settles_is_unstable_and_keeps_what_is_known(workspace: Path) -> None:
    (workspace / "a").write_text("1")
    counter = iter(range(1000))

    def act() -> None:
        (workspace / f"t{next(counter)}").write_text("1")

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert result.unstable == [b"."]
    assert lookup(result.tree, b"a") is not None


def test_rules_that_change_during_the_scan_hold_for_the_whole_directory(workspace: Path) -> None:
    (workspace / "a").write_text("1")
    (workspace / "b.log").write_text("1")

    def act() -> None:
        if not (workspace / ".worksealignore").exists():
            (workspace / ".worksealignore").write_text("*.log\n")

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert [path for path, _ in iter_entries(result.tree)] == [b".worksealignore", b"a"]
    assert [file.path for file in result.policy.files] == [b".worksealignore"]


def test_rules_file_that_vanished_again_is_not_in_the_policy(workspace: Path) -> None:
    (workspace / "a").write_text("1")
    (workspace / ".worksealignore").write_text("b\n")
    (workspace / "b").write_text("1")

    def act() -> None:
        (workspace / ".worksealignore").unlink(missing_ok=True)

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert [path for path, _ in iter_entries(result.tree)] == [b"a", b"b"]
    assert result.policy.files == ()


def test_directory_that_may_be_listed_but_not_searched_is_unreadable(reachable: Path) -> None:
    (reachable / "d").mkdir()
    (reachable / "d" / "f").write_text("1")
    (reachable / "d" / ".worksealignore").write_text("f\n")
    let_nobody_in(reachable)
    (reachable / "d").chmod(0o444)
    out = run_as_nobody(
        """
        result = Scanner(WorkspaceRoot.open(sys.argv[1])).scan()
        print([(p, str(n.type)) for p, n in iter_entries(result.tree)], result.unreadable, result.unstable)
        """,
        str(reachable),
    )
    assert out.strip() == "[(b'd', 'unreadable')] [b'd'] []"


def test_root_that_may_not_be_searched_is_refused(reachable: Path) -> None:
    (reachable / "f").write_text("1")
    let_nobody_in(reachable)
    out = run_as_nobody(
        """
        root = WorkspaceRoot.open(sys.argv[1])
        os.chmod(sys.argv[1], 0o444)
        try:
            Scanner(root).scan()
        except WorkspaceError as error:
            print(type(error).__name__, error)
        os.chmod(sys.argv[1], 0o755)
        """,
        str(reachable),
    )
    assert out.startswith("WorkspaceError")


def test_given_policy_is_used_whatever_lies_in_the_workspace(workspace: Path) -> None:
    (workspace / ".worksealignore").write_text("*.log\n")
    (workspace / "a.log").write_text("1")
    (workspace / "b").write_text("1")
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        before = scanner.scan()
        (workspace / ".worksealignore").write_text("b\n")
        after = scanner.scan(policy=before.policy)
        assert words(before.tree, after.tree) == ["modified .worksealignore"]
        assert after.policy is before.policy
        assert after.rules_changed
        assert scanner.read_policy() == scanner.scan().policy != before.policy


@pytest.mark.parametrize("change", ["none", "edited", "added", "removed", "linked", "executable"])
def test_rules_changed_is_true_exactly_if_the_rules_are_others(change: str, workspace: Path) -> None:
    rules = workspace / "d" / ".worksealignore"
    rules.parent.mkdir()
    rules.write_text("x\n")
    (workspace / "f").write_text("1")
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        policy = scanner.scan().policy
        match change:
            case "edited":
                rules.write_text("y\n")
            case "added":
                (workspace / ".worksealignore").write_text("y\n")
            case "removed":
                rules.unlink()
            case "linked":
                rules.rename(workspace / "f")
                rules.symlink_to("../f")
            case "executable":
                rules.chmod(0o755)
        assert scanner.scan(policy=policy).rules_changed is (change not in ("none", "executable"))


def test_policy_survives_storage(workspace: Path) -> None:
    (workspace / ".worksealignore").write_bytes(b"*.log\n\xff\n")
    (workspace / "f").write_text("1")
    with WorkspaceRoot.open(workspace) as root:
        policy = Scanner(root, config_patterns=["/tmp"]).scan().policy
    again = IgnorePolicy.from_bytes(policy.to_bytes())
    assert again == policy
    assert again.is_ignored(b"a.log", is_dir=False)
    assert again.is_ignored(b"\xff", is_dir=False)
    assert again.is_ignored(b"tmp", is_dir=True)


def test_builtin_only_reads_no_rules(workspace: Path) -> None:
    (workspace / ".worksealignore").write_text("f\n")
    (workspace / "f").write_text("1")
    (workspace / "venv").mkdir()
    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, config_patterns=["f"]).scan(builtin_only=True)
    assert count_entries(result.tree) == 2
    assert result.policy == IgnorePolicy.nonoka()


def test_scan_of_a_mount_point_inside_the_root_descends(workspace: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    (workspace / "m").mkdir()
    script = 'mount -t tmpfs t "$1/m" && echo 1 > "$1/m/f" && shift && exec "$@"'
    scanned = (
        "import sys; from workseal_host.workspace.root import WorkspaceRoot;"
        "from workseal_host.workspace.scan import Scanner;"
        "from workseal_host.workspace.manifest import iter_entries;"
        "print([p for p, _ in iter_entries(Scanner(WorkspaceRoot.open(sys.argv[1])).scan().tree)])"
    )
    answer = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            script,
            "sh",
            workspace,
            sys.executable,
            "-c",
            scanned,
            workspace,
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if answer.returncode and "unshare" in answer.stderr:
        pytest.skip("mounting is not allowed here")
    assert answer.stdout.strip() == "[b'm', b'm/f']", answer.stderr

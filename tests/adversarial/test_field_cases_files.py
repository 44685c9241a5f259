"""Field cases of files and digest: what agents leave lying in a workspace."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from unit.workspace.reference import bind_socket
from unit.workspace.scanning import ActingHash, let_nobody_in, reachable_directory, run_as_nobody, scan, words
from workseal.paths import escape_path, unescape_path
from workseal_host.cli.digest import digest_command
from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.model import EntryType, Leaf, lookup
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    path.mkdir()
    return path


def digest(path: Path, *options: str) -> Result:
    return CliRunner().invoke(digest_command, [str(path), *options])


def entry(path: Path, name: bytes) -> EntryType | None:
    node = lookup(scan(path).tree, name)
    return None if node is None else node.type


# F1


def test_f1_symlink_cycle_is_one_entry(workspace: Path) -> None:
    (workspace / "e" / "x").mkdir(parents=True)
    (workspace / "e" / "x" / "loop").symlink_to("../..")
    (workspace / "a.txt").write_text("hi\n")
    assert digest(workspace).exit_code == 0
    before = scan(workspace)
    assert [path for path, _ in iter_entries(before.tree)] == [b"a.txt", b"e", b"e/x", b"e/x/loop"]
    (workspace / "e" / "x" / "loop").unlink()
    (workspace / "e" / "x" / "loop").symlink_to("..")
    assert words(before.tree, scan(workspace).tree) == ["modified e/x/loop"]


# F2


def test_f2_dangling_symlink_is_recorded_by_its_text(workspace: Path) -> None:
    (workspace / "d").mkdir()
    empty = scan(workspace).tree
    (workspace / "d" / "dead").symlink_to("nowhere")
    dead = scan(workspace).tree
    (workspace / "d" / "dead").unlink()
    (workspace / "d" / "dead").symlink_to("elsewhere")
    retargeted = scan(workspace).tree
    assert words(empty, dead) == ["created d/dead"]
    assert words(dead, retargeted) == ["modified d/dead"]
    assert words(retargeted, empty) == ["deleted d/dead"]
    assert digest(workspace).exit_code == 0


# F3


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_f3_special_file_is_an_entry_and_is_not_opened(kind: str, workspace: Path) -> None:
    name = workspace / "notes.md"
    os.mkfifo(name) if kind == "fifo" else bind_socket(os.fsencode(name))
    (workspace / "ok.txt").write_text("ok\n")
    answer = subprocess.run(
        [sys.executable, "-c", "from workseal_host.cli.digest import digest_command as c; c()", workspace],
        capture_output=True,
        timeout=20,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert answer.stdout.startswith(b"sha256:")
    assert entry(workspace, b"notes.md") == kind
    assert entry(workspace, b"ok.txt") == "file"


def test_f3_file_replaced_by_a_fifo_is_a_change(workspace: Path) -> None:
    (workspace / "a").write_text("1")
    before = scan(workspace).tree
    (workspace / "a").unlink()
    os.mkfifo(workspace / "a")
    assert words(before, scan(workspace).tree) == ["modified a"]


@pytest.mark.timeout(20)
def test_f3_fifo_swapped_in_between_stat_and_open_does_not_hang(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = workspace / "a"
    target.write_text("1")
    real_stat = os.stat

    def stat_then_swap(path: object, **options: object) -> os.stat_result:
        status = real_stat(path, **options)  # type: ignore[arg-type]
        if path == b"a" and stat.S_ISREG(status.st_mode):
            target.unlink()
            os.mkfifo(target)
        return status

    monkeypatch.setattr(os, "stat", stat_then_swap)
    assert entry(workspace, b"a") is EntryType.FIFO


# F5


def test_f5_name_that_is_not_utf8(workspace: Path) -> None:
    for name in (b"bad-\xff.txt", b"bad-\xfe.txt"):
        Path(os.fsdecode(os.fsencode(workspace) + b"/" + name)).write_text("x")
    before = scan(workspace).tree
    assert [path for path, _ in iter_entries(before)] == [b"bad-\xfe.txt", b"bad-\xff.txt"]
    Path(os.fsdecode(os.fsencode(workspace) + b"/bad-\xff.txt")).write_text("y")
    assert words(before, scan(workspace).tree) == ["modified bad-\udcff.txt"]
    assert digest(workspace).exit_code == 0
    text = escape_path(b"bad-\xff.txt")
    assert (text, unescape_path(text)) == ("bad-\\xff.txt", b"bad-\xff.txt")


# F6


@pytest.fixture
def guarded() -> Iterator[Path]:
    with reachable_directory() as workspace:
        (workspace / "a").write_text("s")
        (workspace / "b").write_text("t")
        (workspace / "p").mkdir()
        (workspace / "p" / "q").write_text("u")
        let_nobody_in(workspace)
        (workspace / "a").chmod(0)
        (workspace / "p").chmod(0)
        yield workspace


SCAN_AS_NOBODY = """
import json
def look():
    result = Scanner(WorkspaceRoot.open(sys.argv[1])).scan()
    listed = {p.decode(): str(n.type) for p, n in iter_entries(result.tree)}
    return [result.tree.digest.hex(), listed, [p.decode() for p in result.unreadable], result.settled]
def act(code):
    exec(code)
    return look()
os.chdir(sys.argv[1])
print(json.dumps([act(code) for code in sys.argv[2:]]))
"""


def test_f6_unreadable_entries_are_listed_and_part_of_the_digest(guarded: Path) -> None:
    out = run_as_nobody(
        SCAN_AS_NOBODY,
        str(guarded),
        "pass",
        "open('b', 'w').write('u')",
        "os.chmod('a', 0o644)",
        "open('a', 'w').write('')",
        "os.remove('a')",
        "os.chmod('p', 0o755)",
    )
    looks = json.loads(out)
    first, b_changed, a_readable, a_empty, a_absent, all_readable = looks
    assert first[1] == {"a": "unreadable", "b": "file", "p": "unreadable"}
    assert first[2:] == [["a", "p"], False]
    assert b_changed[1:] == first[1:]
    assert a_readable[2] == ["p"]
    assert all_readable[1:] == [{"b": "file", "p": "directory", "p/q": "file"}, [], True]
    digests = [each[0] for each in (first, b_changed, a_readable, a_empty, a_absent, all_readable)]
    assert len(set(digests)) == len(digests)


def test_f6_command_line_names_the_paths_and_does_not_fail(guarded: Path) -> None:
    out = run_as_nobody(
        """
        plain = CliRunner().invoke(digest_command, [sys.argv[1]])
        print(plain.exit_code, plain.stderr.splitlines())
        print(CliRunner().invoke(digest_command, [sys.argv[1], "--check", plain.stdout.strip()]).exit_code)
        """,
        str(guarded),
        # Run once before the rights go: some modules are loaded late.
        imports="from click.testing import CliRunner; from workseal_host.cli.digest import digest_command\n"
        "CliRunner().invoke(digest_command, [sys.argv[1]])",
    )
    assert out.splitlines() == [
        "0 ['workseal: warning: a could not be read', 'workseal: warning: p could not be read']",
        "1",
    ]


# F7


@contextmanager
def meanwhile(code: str, directory: Path) -> Iterator[None]:
    """Run a busy loop beside the test, in a process of its own."""
    script = f"import os, itertools\nos.chdir({str(directory)!r})\nprint('ready', flush=True)\n"
    script += "for i in itertools.count():\n"
    script += "".join(f"    {line}\n" for line in code.splitlines())
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        try:
            yield
        finally:
            busy.kill()


def test_f7_files_that_come_and_go_never_fail_a_scan(workspace: Path) -> None:
    (workspace / "keep").write_text("1")
    with (
        WorkspaceRoot.open(workspace) as root,
        meanwhile("open(f't.{i % 7}', 'w').close()\nos.remove(f't.{i % 7}')", workspace),
    ):
        scanner = Scanner(root)
        for _ in range(200):
            result = scanner.scan()
            assert lookup(result.tree, b"keep") is not None
            assert result.unstable in ([], [b"."])


def test_f7_directory_renamed_back_and_forth_is_not_silently_left_out(workspace: Path) -> None:
    (workspace / "m").mkdir()
    for number in range(20):
        (workspace / "m" / str(number)).write_text("1")
    with (
        WorkspaceRoot.open(workspace) as root,
        meanwhile("os.rename('m', 'n')\nos.rename('n', 'm')", workspace),
    ):
        scanner = Scanner(root)
        for _ in range(200):
            result = scanner.scan()
            if not result.settled:
                assert result.unstable
                continue
            (only,) = result.tree.entries.items()
            assert only[0] in (b"m", b"n")
            assert len(only[1].entries) == 20


def test_f7_entry_that_vanishes_before_it_is_read_is_absent(workspace: Path) -> None:
    for name in ("a", "b", "c"):
        (workspace / name).write_text(name)
    (workspace / "d").mkdir()

    def act() -> None:
        for name in ("a", "b", "c"):
            (workspace / name).unlink(missing_ok=True)
        if (workspace / "d").exists():
            (workspace / "d").rmdir()

    with WorkspaceRoot.open(workspace) as root:
        result = Scanner(root, new_hash=lambda: ActingHash(act)).scan(ScanLevel.FULL)
    assert result.settled
    assert not result.tree.entries


def test_f7_digest_of_a_busy_workspace_exits_with_0(workspace: Path) -> None:
    with meanwhile("open('t', 'w').close()\nos.remove('t')", workspace):
        assert {digest(workspace).exit_code for _ in range(30)} == {0}


# F10


@pytest.mark.parametrize("level", [ScanLevel.FULL, ScanLevel.STAT])
def test_f10_permission_only_change_is_seen(level: ScanLevel, workspace: Path) -> None:
    script = workspace / "s.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        before = scanner.scan(level).tree
        script.chmod(0o755)
        after = scanner.scan(level).tree
        assert words(before, after) == ["modified s.sh"]
        assert isinstance(after.entries[b"s.sh"], Leaf)
        assert after.entries[b"s.sh"].type is EntryType.EXECUTABLE
        script.chmod(0o644)
        assert scanner.scan(level).tree == before


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o666, 0o2644, 0o4644, 0o1644, 0o655], ids=oct)
def test_f10_other_mode_bits_are_not_in_the_digest(mode: int, workspace: Path) -> None:
    """As docs/digest.md says: neither setuid, setgid and sticky nor group and other bits."""
    (workspace / "f").write_text("1")
    (workspace / "f").chmod(0o644)
    before = scan(workspace).tree
    (workspace / "f").chmod(mode)
    assert scan(workspace).tree == before


def test_f10_umask_does_not_matter(workspace: Path) -> None:
    digests = set()
    for umask in (0o000, 0o022, 0o077):
        path = workspace / oct(umask)
        old = os.umask(umask)
        try:
            (path / "d").mkdir(parents=True)
            (path / "d" / "f").write_text("1")
        finally:
            os.umask(old)
        digests.add(scan(path).tree.digest)
    assert len(digests) == 1


# F60


@pytest.mark.skipif(sys.platform == "darwin", reason="one entry there, by the file system")
def test_f60_composed_and_decomposed_names_are_two_entries(workspace: Path) -> None:
    composed, decomposed = "\u00e9.txt", unicodedata.normalize("NFD", "\u00e9.txt")
    (workspace / decomposed).write_text("1")
    (workspace / composed).write_text("2")
    before = scan(workspace).tree
    assert [path for path, _ in iter_entries(before)] == [decomposed.encode(), composed.encode()]
    (workspace / composed).unlink()
    assert words(before, scan(workspace).tree) == [f"deleted {composed}"]


# F35: what a scan does of it is in tests/unit/workspace/test_workspace_stat_level.py


@pytest.mark.parametrize("level", [ScanLevel.FULL, ScanLevel.STAT])
def test_f35_write_through_a_map_by_a_process_that_keeps_the_file_open(
    level: ScanLevel, workspace: Path
) -> None:
    (workspace / "m.bin").write_bytes(b"x" * 4096)
    helper = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "    print(m[0], flush=True); sys.stdin.readline()\n"
        "    m[0:5] = b'YYYYY'; m.flush()\n"
        "    print('done', flush=True); sys.stdin.readline()\n"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", helper, workspace / "m.bin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        WorkspaceRoot.open(workspace) as root,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        scanner = Scanner(root)
        before = scanner.scan(level).tree
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        after = scanner.scan(level).tree
        process.stdin.write("\n")
        process.stdin.flush()
    assert words(before, after) == ["modified m.bin"]
    assert after == scan(workspace).tree


def test_f42_outside_file_behind_a_link_is_never_opened(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = workspace.parent / "secret"
    outside.write_text("root:")
    (workspace / "leak").symlink_to(outside)
    opened: list[int] = []
    real_open = os.open

    def watching(*arguments: object, **options: object) -> int:
        fd = real_open(*arguments, **options)  # type: ignore[arg-type]
        opened.append(os.fstat(fd).st_ino)
        return fd

    monkeypatch.setattr(os, "open", watching)
    assert entry(workspace, b"leak") is EntryType.SYMLINK
    assert outside.stat().st_ino not in opened


def test_scan_beside_threads_that_write(workspace: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (workspace / f"f{number % 5}").write_text(str(number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            scan(workspace)
    finally:
        stop.set()
        writer.join()
    assert scan(workspace).settled

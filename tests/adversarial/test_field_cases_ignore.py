"""Field cases of ignore rules: one evaluator, git's semantics, never fail open."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from unit.workspace.reference import bind_socket
from unit.workspace.scanning import let_nobody_in, reachable_directory, run_as_nobody, scan, words
from workseal_host.cli.digest import digest_command
from workseal_host.errors import IgnoreRulesError
from workseal_host.workspace import ignore
from workseal_host.workspace.ignore import BUILTIN_NAMES, IgnorePolicy, RuleFile
from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner

needs_git = pytest.mark.skipif(
    shutil.which("git") is None and "CI" not in os.environ, reason="git is not installed"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    path.mkdir()
    return path


def write(workspace: Path, **files: str) -> None:
    """Write files; ``__`` stands for a slash and ``rules`` for the rules file."""
    for key, content in files.items():
        path = workspace / key.replace("__", "/").replace("rules", ".worksealignore")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def listed(workspace: Path) -> list[bytes]:
    return [path for path, _ in iter_entries(scan(workspace).tree)]


# F11 (the agreement with git itself is in tests/unit/workspace/test_git_agreement.py)


def test_f11_file_under_an_excluded_directory_cannot_be_re_included(workspace: Path) -> None:
    write(workspace, rules="build\n!keep.log\n", build__keep="1", a="1")
    (workspace / "build" / "keep.log").write_text("1")
    before = scan(workspace)
    (workspace / "build" / "keep.log").write_text("2")
    after = scan(workspace)
    assert before.tree.digest == after.tree.digest
    assert words(before.tree, after.tree) == []
    assert before.policy.is_ignored(b"build", is_dir=True)


# F12


def test_f12_nested_rules_re_include_what_the_parent_excluded(workspace: Path) -> None:
    write(workspace, rules="**/vendor/\n", a__rules="!vendor\n", a__vendor__f="1", b__vendor__f="1")
    before = scan(workspace)
    (workspace / "a" / "vendor" / "f").write_text("2")
    (workspace / "b" / "vendor" / "f").write_text("2")
    assert words(before.tree, scan(workspace).tree) == ["modified a/vendor/f"]


def test_f12_rules_in_an_ignored_directory_are_not_read(workspace: Path) -> None:
    write(workspace, rules="vendor\n", vendor__rules="!*\n", a="1")
    assert [file.path for file in scan(workspace).policy.files] == [b".worksealignore"]


# F14


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "fifo", "socket"])
@pytest.mark.parametrize("name", [".git", "node_modules"])
def test_f14_built_in_name_is_skipped_whatever_its_type(kind: str, name: str, workspace: Path) -> None:
    write(workspace, a="1", d__b="2")
    before = scan(workspace).tree
    for place in (workspace / name, workspace / "d" / name):
        match kind:
            case "file":
                place.write_text("gitdir: /elsewhere\n")
            case "directory":
                place.mkdir()
            case "symlink":
                place.symlink_to("/")
            case "fifo":
                os.mkfifo(place)
            case "socket":
                bind_socket(os.fsencode(place))
    assert scan(workspace).tree == before


@needs_git
def test_f14_worktree_moved_with_its_repository_keeps_its_digest(tmp_path: Path) -> None:
    def git(*arguments: str, directory: Path) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        subprocess.run(
            ["git", *identity, *arguments],
            cwd=directory,
            check=True,
            capture_output=True,
            env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        )

    here = tmp_path / "here"
    (here / "m").mkdir(parents=True)
    git("init", "-q", directory=here / "m")
    git("commit", "-q", "--allow-empty", "-m", "i", directory=here / "m")
    git("worktree", "add", "-q", "../wt", "-b", "b", directory=here / "m")
    (here / "wt" / "f").write_text("1")
    before = scan(here / "wt").tree
    assert [path for path, _ in iter_entries(before)] == [b"f"]
    there = tmp_path / "there"
    here.rename(there)
    git("worktree", "repair", "../wt", directory=there / "m")
    assert scan(there / "wt").tree == before
    (there / "wt" / "link").symlink_to(there / "m")
    assert words(before, scan(there / "wt").tree) == ["created link"]


def test_f14_fresh_repository_alone_is_not_refused(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / "node_modules").mkdir()
    assert listed(workspace) == []


# F15


def test_f15_existence_of_an_ignored_directory_does_not_matter(workspace: Path) -> None:
    write(workspace, a="1")
    before = scan(workspace).tree
    write(workspace, node_modules__x__i="1")
    after = scan(workspace).tree
    assert (before.digest, words(before, after)) == (after.digest, [])


def test_f15_empty_directory_counts(workspace: Path) -> None:
    write(workspace, a="1")
    before = scan(workspace).tree
    (workspace / "empty").mkdir()
    assert words(before, scan(workspace).tree) == ["created empty"]


def test_f15_parent_of_nothing_but_ignored_names_is_an_empty_directory(workspace: Path) -> None:
    write(workspace, a="1", d__venv__x="1")
    ignoring = scan(workspace).tree
    shutil.rmtree(workspace / "d" / "venv")
    assert scan(workspace).tree == ignoring


# F52


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    bind_socket(os.fsencode(path))


def _symlink(path: Path) -> None:
    (path.parent / "real").write_text("*.log\n")
    path.symlink_to("real")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000)


def _many(path: Path) -> None:
    path.write_text("x*\n" * (ignore.MAX_RULES + 1))


def _large_together(path: Path) -> None:
    for place in (path, path.parent / "sub" / path.name):
        place.parent.mkdir(exist_ok=True)
        place.write_text("#" * (ignore.MAX_RULES_BYTES - 10))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make", [_directory, _fifo, _socket, _symlink, _dangling, _huge, _many, _large_together]
)
@pytest.mark.parametrize("place", ["", "d/e"])
def test_f52_rules_that_cannot_be_read_are_refused(make: object, place: str, workspace: Path) -> None:
    (workspace / "d" / "e").mkdir(parents=True)
    (workspace / "f").write_text("1")
    make(workspace / place / ".worksealignore")  # type: ignore[operator]
    with WorkspaceRoot.open(workspace) as root:
        for look in (Scanner(root).scan, Scanner(root).read_policy):
            with pytest.raises(IgnoreRulesError) as caught:
                look()
            if make not in (_many, _large_together):
                assert caught.value.path == os.fsencode(os.path.join(place, ".worksealignore"))
                assert ".worksealignore" in str(caught.value)
    assert CliRunner().invoke(digest_command, [str(workspace)]).exit_code == 2


def test_f52_unreadable_rules_are_refused() -> None:
    with reachable_directory() as workspace:
        write(workspace, rules="*.log\n", a="1")
        let_nobody_in(workspace)
        (workspace / ".worksealignore").chmod(0)
        out = run_as_nobody(
            """
            try:
                Scanner(WorkspaceRoot.open(sys.argv[1])).scan()
            except IgnoreRulesError as error:
                print(error.path)
            """,
            str(workspace),
        )
    assert out.strip() == "b'.worksealignore'"


def test_f52_invalid_pattern_matches_nothing_and_the_others_hold(workspace: Path) -> None:
    (workspace / "[").write_text("1")
    write(workspace, rules="[\n*.log\n", a="1")
    (workspace / "x.log").write_text("1")
    assert listed(workspace) == [b".worksealignore", b"[", b"a"]


def test_f52_rules_spoilt_by_a_call_do_not_change_its_own_after_scan(workspace: Path) -> None:
    write(workspace, rules="*.log\n", a="1")
    (workspace / "x.log").write_text("1")
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        before = scanner.scan()
        (workspace / ".worksealignore").unlink()
        (workspace / ".worksealignore").mkdir()
        (workspace / "x.log").write_text("2")
        after = scanner.scan(policy=before.policy)
        assert words(before.tree, after.tree) == ["modified .worksealignore"]
        assert after.rules_changed
        with pytest.raises(IgnoreRulesError):
            scanner.scan()


@pytest.mark.parametrize(
    "rules",
    ["*\n", "/*\n", "**\n", "a\nd\n", "*\n!.worksealignore\n"],
    ids=["star", "slash", "deep", "names", "itself"],
)
def test_policy_that_leaves_nothing_is_refused(rules: str, workspace: Path) -> None:
    write(workspace, rules=rules, a="1", d__b="1")
    with pytest.raises(IgnoreRulesError, match="leave nothing"):
        scan(workspace)


def test_policy_that_leaves_nothing_is_refused_also_from_the_configuration(workspace: Path) -> None:
    write(workspace, a="1")
    with WorkspaceRoot.open(workspace) as root, pytest.raises(IgnoreRulesError, match="leave nothing"):
        Scanner(root, config_patterns=["*"]).scan()


def test_nested_rules_that_leave_nothing_but_themselves_are_refused(workspace: Path) -> None:
    write(workspace, d__rules="*\n", d__a="1")
    with pytest.raises(IgnoreRulesError, match="leave nothing"):
        scan(workspace)


def test_root_with_nothing_but_rules_is_not_refused(workspace: Path) -> None:
    write(workspace, rules="*\n")
    assert listed(workspace) == [b".worksealignore"]


def test_call_that_deletes_all_but_ignored_files_can_still_be_scanned_by_its_own_rules(
    workspace: Path,
) -> None:
    write(workspace, rules="build\n", build__x="1", a="1")
    with WorkspaceRoot.open(workspace) as root:
        scanner = Scanner(root)
        before = scanner.scan()
        (workspace / "a").unlink()
        assert words(before.tree, scanner.scan(policy=before.policy).tree) == ["deleted a"]
        assert scanner.read_policy() == before.policy


def test_rules_files_always_count(workspace: Path) -> None:
    write(workspace, rules=".worksealignore\n", a="1")
    with WorkspaceRoot.open(workspace) as root:
        assert b".worksealignore" in Scanner(root, config_patterns=[".worksealignore"]).scan().tree.entries


def test_rules_files_count_also_under_a_given_policy(workspace: Path) -> None:
    write(workspace, rules="x\n", a="1", d__rules="y\n")
    policy = IgnorePolicy((), ["*orksealignore"])
    assert not policy.is_ignored(b"d/.worksealignore", is_dir=False)
    tree = scan(workspace, policy=policy).tree
    assert [path for path, _ in iter_entries(tree)] == [b".worksealignore", b"a", b"d", b"d/.worksealignore"]


def test_gitignore_is_not_read(workspace: Path) -> None:
    (workspace / ".gitignore").write_text("a\n")
    write(workspace, a="1")
    assert listed(workspace) == [b".gitignore", b"a"]


# Precedence


@pytest.mark.parametrize(
    ("files", "config", "path", "ignored"),
    [
        pytest.param({}, [], b"coverage", True, id="built-in"),
        pytest.param({b"": "!coverage"}, [], b"coverage", False, id="a file overrules a built-in name"),
        pytest.param(
            {b"": "!coverage"}, ["coverage"], b"coverage", True, id="configuration overrules a file"
        ),
        pytest.param({b"": "x"}, ["!x"], b"x", False, id="configuration re-includes"),
        pytest.param({b"": "x", b"d": "!x"}, [], b"d/x", False, id="inner file overrules outer"),
        pytest.param({b"": "!x", b"d": "x"}, [], b"d/x", True, id="inner file excludes again"),
        pytest.param({b"": "x", b"d": "!x"}, [], b"x", True, id="inner file does not hold outside"),
        pytest.param({b"d": "/x"}, [], b"d/x", True, id="anchored at its own directory"),
        pytest.param({b"d": "/x"}, [], b"d/e/x", False, id="anchored, deeper"),
        pytest.param({}, ["/x"], b"d/x", False, id="configuration is anchored at the root"),
        pytest.param({b"d": "x"}, [], b"dd/x", False, id="directory with the same prefix"),
    ],
)
def test_precedence(files: dict[bytes, str], config: list[str], path: bytes, ignored: bool) -> None:
    policy = IgnorePolicy(
        [
            RuleFile.read((directory + b"/" if directory else b"") + b".worksealignore", content.encode())
            for directory, content in files.items()
        ],
        config,
    )
    assert policy.is_ignored(path, is_dir=False) is ignored


def test_built_in_names_are_exactly_those_of_the_design() -> None:
    assert " ".join(BUILTIN_NAMES) == (
        ".git .nonoka node_modules .venv venv __pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis "
        ".tox .nox .coverage coverage htmlcov"
    )


def test_policy_digest_is_over_its_canonical_form() -> None:
    policy = IgnorePolicy([RuleFile.read(b"d\xff/.worksealignore", b"x\n")], ["*.log"])
    names = ",".join(f'"{name}"' for name in BUILTIN_NAMES)
    sha256 = "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac"
    files = f'[{{"path":"d\\\\xff/.worksealignore","sha256":"{sha256}"}}]'
    form = f'{{"builtin":[{names}],"config":["*.log"],"files":{files}}}'
    assert policy.digest == hashlib.sha256(form.encode()).hexdigest()


@pytest.mark.parametrize("pattern", ["a\nb", "a\rb", "a\0b", "\ud800"], ids=ascii)
def test_configured_pattern_that_is_not_one_line_is_refused(pattern: str) -> None:
    with pytest.raises(IgnoreRulesError):
        IgnorePolicy((), [pattern])

"""The ignore rules agree with git's own answer, pattern by pattern and path by path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from unit.workspace.git_corpus import Case, ignored_by_git, make_cases
from workseal_host.workspace.ignore import IgnorePolicy, RuleFile
from workseal_host.workspace.rules import parse_rule
from workseal_host.workspace.wildmatch import translate

needs_git = pytest.mark.skipif(
    shutil.which("git") is None and "CI" not in os.environ, reason="git is not installed"
)


def ignored_by_us(cases: list[Case]) -> set[bytes]:
    ignored = set()
    for number, case in enumerate(cases):
        base = b"%d" % number
        policy = IgnorePolicy(
            RuleFile.read(b"/".join(filter(None, (base, directory, b".worksealignore"))), content)
            for directory, content in case.rules.items()
        )
        for path, is_dir in case.paths.items():
            full = base + b"/" + path
            names = full.split(b"/")
            if any(
                policy.is_ignored(b"/".join(names[:depth]), depth < len(names) or is_dir)
                for depth in range(1, len(names) + 1)
            ):
                ignored.add(full)
    return ignored


@needs_git
@pytest.mark.parametrize("seed", [1, 20240229])
def test_f11_evaluator_agrees_with_git_on_a_generated_corpus(seed: int, tmp_path: Path) -> None:
    cases = make_cases(seed, 150)
    git, ours = ignored_by_git(cases, tmp_path), ignored_by_us(cases)
    differing = sorted(git ^ ours)
    explained = [(path, path in git, cases[int(path.split(b"/")[0])].rules) for path in differing[:5]]
    assert not differing, f"{len(differing)} paths, first (path, ignored by git, rules): {explained}"
    assert len(git) > 500


@pytest.mark.parametrize(
    ("pattern", "path", "text"),
    [
        (b"*a" * 60 + b"b", False, b"a" * 255),
        (b"**/a/" * 50 + b"b", True, b"a/" * 1000 + b"c"),
        (b"**/*a*a*a*b/" * 20 + b"x", True, (b"a" * 200 + b"/") * 20),
        (b"**/" * 200 + b"x", True, b"a/" * 2000),
        (b"**\\/a" * 40, True, b"a/" * 1000 + b"c"),
        (b"*/" * 500 + b"x", True, b"a/" * 1000),
    ],
    ids=["stars", "deep", "both", "empty deep", "escaped slash", "components"],
)
@pytest.mark.timeout(5)
def test_hostile_pattern_is_answered_at_once(pattern: bytes, path: bool, text: bytes) -> None:
    expression = translate(pattern, path=path)
    assert expression is not None
    assert expression.fullmatch(text) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"a ", b"a"),
        (b"a\\ ", b"a "),
        (b"a\\  ", b"a "),
        (b"a\\\\ ", b"a\\"),
        (b"a\\\\\\ ", b"a\\ "),
        (b"a\r", b"a"),
    ],
)
def test_trailing_spaces_count_only_when_escaped(line: bytes, name: bytes) -> None:
    rule = parse_rule(line)
    assert rule is not None
    assert (rule.literal == name) if rule.literal else (rule.pattern and rule.pattern.fullmatch(name))


@pytest.mark.parametrize("pattern", [b"[", b"a[b", b"a\\", b"[[:nope:]]", b"[a-", b"[\\", b"[[:alpha:"])
def test_f52_malformed_pattern_matches_nothing(pattern: bytes) -> None:
    rule = parse_rule(pattern)
    assert rule is not None
    assert rule.literal is None
    assert rule.pattern is None

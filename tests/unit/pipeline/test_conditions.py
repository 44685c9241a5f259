"""Preconditions against a real workspace, and protected globs."""

from __future__ import annotations

import hashlib
import time

import pytest

from support.engines import Bench, predicate
from workseal_host.evidence.policy import ProtectedPaths, matches_glob
from workseal_host.requests import PathExpectation, Precondition
from workseal_host.workspace.model import EntryType

ONE = hashlib.sha256(b"1").hexdigest()
OTHER = hashlib.sha256(b"2").hexdigest()


@pytest.mark.parametrize(
    ("path", "absent", "type_", "digest", "holds"),
    [
        ("f", False, None, "", True),
        ("f", False, EntryType.FILE, ONE, True),
        ("f", False, None, ONE, True),
        ("f", False, None, OTHER, False),
        ("f", False, EntryType.EXECUTABLE, ONE, False),
        ("f", True, None, "", False),
        ("g", True, None, "", True),
        ("g", False, None, "", False),
        ("f/g", True, None, "", True),
        ("d", False, EntryType.DIRECTORY, "", True),
    ],
)
async def test_the_expected_state_of_a_path(
    bench: Bench, path: str, absent: bool, type_: EntryType | None, digest: str, holds: bool
) -> None:
    await bench.open()
    (bench.workspace / "f").write_text("1")
    (bench.workspace / "d").mkdir()
    expected = PathExpectation.of(path, absent=absent, type_=type_, digest=digest)
    outcome = await bench.run("bash", {"command": "touch ran"}, precondition=Precondition(paths=(expected,)))
    stated = predicate(outcome)
    assert stated.outcome == ("completed" if holds else "refused")
    assert stated.precondition.status == ("met" if holds else "unmet")
    assert [item.path for item in stated.precondition.differences] == ([] if holds else [path])
    assert (bench.workspace / "ran").exists() == holds


@pytest.mark.parametrize("path", ["node_modules", "node_modules/x", "out", "out/x"])
@pytest.mark.parametrize("there", [True, False])
async def test_what_is_ignored_cannot_be_proved_absent(bench: Bench, path: str, there: bool) -> None:
    (bench.workspace / ".worksealignore").write_text("out/\n")
    (bench.workspace / "f").write_text("1")
    if there:
        for name in ("node_modules", "out"):
            (bench.workspace / name).mkdir()
            (bench.workspace / name / "x").write_text("1")
    await bench.open()
    expected = PathExpectation.of(path, absent=True, type_=None, digest="")
    outcome = await bench.run("bash", {"command": "touch ran"}, precondition=Precondition(paths=(expected,)))
    assert (predicate(outcome).outcome, predicate(outcome).precondition.status) == ("refused", "unmet")
    assert "ignored" in predicate(outcome).reason


async def test_what_a_scheme_does_not_count_is_not_absent(bench: Bench) -> None:
    (bench.workspace / "link").symlink_to("nowhere")
    await bench.open(scheme="nonoka/1")
    expected = PathExpectation.of("link", absent=True, type_=None, digest="")
    outcome = await bench.run("bash", {"command": "touch ran"}, precondition=Precondition(paths=(expected,)))
    assert predicate(outcome).precondition.status == "unmet"


async def test_the_expected_digest_of_the_workspace(bench: Bench) -> None:
    engine = await bench.open()
    wanted = Precondition(workspace_digest=(await engine.observer.look()).digest)
    met = await bench.run("bash", {"command": "touch f"}, precondition=wanted)
    unmet = await bench.run("bash", {"command": "touch g"}, precondition=wanted)
    assert [predicate(met).outcome, predicate(unmet).outcome] == ["completed", "refused"]
    assert predicate(unmet).precondition.expected == wanted.workspace_digest
    assert predicate(unmet).workspace.before == predicate(met).workspace.after


@pytest.mark.parametrize(
    ("path", "glob", "matches"),
    [
        (b".claude", ".claude/**", True),
        (b".claude/a/b", ".claude/**", True),
        (b"x/.claude/a", ".claude/**", True),
        (b"x/.CLAUDE/a", ".claude/**", True),
        (b".claudes/a", ".claude/**", False),
        (b"a/opencode.jsonc", "opencode.json*", True),
        (b"opencode.json.d/below", "opencode.json*", True),
        (b"myopencode.json", "opencode.json*", False),
        (b"src/a/b.py", "src/*.py", False),
        (b"src/b.py", "src/*.py", True),
        (b"lib/src/b.py", "src/*.py", True),
        (b"lib/src/b.py", "/src/*.py", False),
        (b"src/b.py", "/src/*.py", True),
        (b"a\xffb", "a?b", True),
        (b"anything", "!anything", False),
    ],
)
def test_protected_globs(path: bytes, glob: str, matches: bool) -> None:
    assert matches_glob(path, glob) is matches


def test_a_chain_of_thousands_of_directories_costs_little() -> None:
    protected = ProtectedPaths([".claude/**", "a/b/**", "*.json"])
    path, started = b"d", time.process_time()
    for _ in range(3000):
        assert protected.globs_of(path) == ()
        path += b"/d"
    # Gone up anew for each, it took minutes.
    assert time.process_time() - started < 5


async def test_violations_with_long_paths_leave_room_for_a_receipt(bench: Bench) -> None:
    await bench.open()
    directory = "/".join(["d" * 120] * 30)
    make = f"mkdir -p .claude/{directory} && cd .claude/{directory} && touch $(seq 1 1000)"
    seen = predicate(await bench.run("bash", {"command": make}))
    listed = seen.policy.violations
    assert 0 < len(listed) < 1000
    assert listed[-1].rule.endswith(" more")
    assert len(listed) - 1 + int(listed[-1].rule.split()[0]) == 1031

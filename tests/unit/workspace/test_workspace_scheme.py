"""Both schemes against implementations of their description, one of them in JavaScript."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from unit.workspace import reference
from unit.workspace.trees import directories, files, leaf, leaves, plant_random, tree
from workseal_host.errors import DigestSchemeError
from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.model import Directory, EntryType, make_directory, special_leaf, unreadable_leaf
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest

NONOKA = DigestScheme.NONOKA_1

NODE_HOST = """
import {createHash} from 'node:crypto';
import {lstatSync, readFileSync, readdirSync} from 'node:fs';
const hex = (data) => createHash('sha256').update(data).digest('hex');
const excluded = new Set('.git .nonoka node_modules .venv venv __pycache__ .pytest_cache .mypy_cache'
  .concat(' .ruff_cache .hypothesis .tox .nox .coverage coverage htmlcov').split(' '));
function walk(root, below, lines) {
  for (const name of readdirSync(root + below)) {
    if (excluded.has(name)) continue;
    const status = lstatSync(root + below + '/' + name);
    if (status.isDirectory()) walk(root, below + '/' + name, lines);
    else if (status.isFile()) {
      lines.push((below + '/' + name).slice(1) + '\\0' + hex(readFileSync(root + below + '/' + name)));
    }
  }
  return lines;
}
const roots = JSON.parse(readFileSync(0, 'utf8'));
console.log(JSON.stringify(roots.map((root) => hex(walk(root, '', []).sort().join('\\n')))));
"""

needs_node = pytest.mark.skipif(
    shutil.which("node") is None and "CI" not in os.environ, reason="node is not installed"
)


def scan_nonoka(path: Path) -> str:
    with WorkspaceRoot.open(path) as root:
        return workspace_digest(Scanner(root).scan(builtin_only=True).tree, NONOKA).hex()


def text_files(path: Path) -> dict[str, bytes]:
    found = {}
    for directory, names, file_names in os.walk(path):
        names[:] = [name for name in names if name not in reference.BUILTIN]
        for name in file_names:
            full = Path(directory, name)
            if name not in reference.BUILTIN and full.is_file() and not full.is_symlink():
                found[str(full.relative_to(path))] = full.read_bytes()
    return found


@needs_node
def test_nonoka_digest_equals_a_javascript_host_on_random_trees(tmp_path: Path) -> None:
    roots = [tmp_path / str(seed) for seed in range(25)]
    for seed, root in enumerate(roots):
        root.mkdir()
        plant_random(root, seed, only_text_names=True)
    script = tmp_path / "host.mjs"
    script.write_text(NODE_HOST)
    answer = subprocess.run(
        ["node", script],
        input=json.dumps([str(root) for root in roots]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [scan_nonoka(root) for root in roots] == json.loads(answer.stdout)


@pytest.mark.parametrize("seed", range(10))
def test_nonoka_digest_equals_the_reference_on_random_trees(seed: int, tmp_path: Path) -> None:
    plant_random(tmp_path, seed, only_text_names=True)
    assert scan_nonoka(tmp_path) == reference.nonoka_digest(text_files(tmp_path))


@pytest.mark.parametrize("seed", range(10))
def test_tree_digest_equals_the_reference_on_random_trees(seed: int, tmp_path: Path) -> None:
    plant_random(tmp_path, seed)
    with WorkspaceRoot.open(tmp_path) as root:
        assert Scanner(root).scan().tree.digest == reference.tree_digest(
            reference.disk_tree(os.fsencode(tmp_path))
        )


@given(directories(leaves))
def test_workseal_sees_the_tree_itself(each: Directory) -> None:
    assert project(each, DigestScheme.WORKSEAL_TREE_1) is each
    assert workspace_digest(each, DigestScheme.WORKSEAL_TREE_1) == each.digest


@given(directories(files, names=(b"a", b"b", b"a.b", b"\xc3\xa9")))
def test_nonoka_projection_keeps_files_and_the_directories_that_hold_them(each: Directory) -> None:
    projected = project(each, NONOKA)
    kept = {path: node.digest for path, node in iter_entries(projected) if not isinstance(node, Directory)}
    assert kept == {path: node.digest for path, node in iter_entries(each) if not isinstance(node, Directory)}
    assert all(node.type in (EntryType.FILE, EntryType.DIRECTORY) for _, node in iter_entries(projected))
    assert all(node.entries for _, node in iter_entries(projected) if isinstance(node, Directory))
    assert project(projected, NONOKA) == projected


def test_nonoka_drops_what_it_does_not_know() -> None:
    before = tree(f=leaf("1"), l=leaf("1", EntryType.SYMLINK), p=special_leaf(EntryType.FIFO), d=tree())
    assert project(before, NONOKA) == tree(f=leaf("1"))


@pytest.mark.parametrize("what", [EntryType.FILE, EntryType.DIRECTORY])
def test_nonoka_refuses_the_unreadable(what: EntryType) -> None:
    with pytest.raises(DigestSchemeError, match="could not be read") as caught:
        workspace_digest(tree(d=tree(u=unreadable_leaf(what))), NONOKA)
    assert caught.value.path == b"d/u"


def test_nonoka_refuses_a_file_name_that_is_not_utf8() -> None:
    with pytest.raises(DigestSchemeError, match="not UTF-8") as caught:
        workspace_digest(make_directory([(b"bad-\xff", leaf("x"))]), NONOKA)
    assert caught.value.path == b"bad-\xff"


def test_nonoka_refuses_a_file_below_a_name_that_is_not_utf8() -> None:
    with pytest.raises(DigestSchemeError, match="not UTF-8"):
        workspace_digest(make_directory([(b"\xff", tree(f=leaf("x")))]), NONOKA)


def test_nonoka_does_not_mind_the_name_of_what_it_drops() -> None:
    odd = make_directory([(b"\xff", leaf("x", EntryType.SYMLINK)), (b"\xfe", tree())])
    assert workspace_digest(odd, NONOKA).hex() == reference.nonoka_digest({})


def test_nonoka_treats_an_executable_as_a_file() -> None:
    executable, plain = tree(s=leaf("1", EntryType.EXECUTABLE)), tree(s=leaf("1"))
    assert workspace_digest(executable, NONOKA) == workspace_digest(plain, NONOKA)
    assert executable.digest != plain.digest

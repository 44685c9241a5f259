"""`workseal digest`, `manifest` and `diff` as scripts use them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import xxhash
from click.testing import CliRunner, Result

from unit.workspace.scanning import scan
from workseal_host.cli.diff import diff_command
from workseal_host.cli.digest import digest_command
from workseal_host.cli.manifest import manifest_command
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner, ScanResult
from workseal_host.workspace.scheme import DigestScheme, workspace_digest


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("WORKSEAL_CONFIG", raising=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    (path / "d").mkdir(parents=True)
    (path / "d" / "f").write_text("1")
    (path / "a").write_text("2")
    return path


def digest(*arguments: object) -> Result:
    return CliRunner().invoke(digest_command, [str(each) for each in arguments])


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(diff_command, [str(each) for each in arguments])


def save(workspace: Path, target: Path, *options: str) -> Path:
    answer = CliRunner().invoke(manifest_command, [str(workspace), *options])
    assert answer.exit_code == 0
    target.write_text(answer.stdout)
    return target


def test_digest_prints_the_digest_and_nothing_else(workspace: Path) -> None:
    answer = digest(workspace)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (
        0,
        f"sha256:{scan(workspace).tree.digest.hex()}\n",
        "",
    )


def test_digest_of_the_current_directory(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    assert digest().stdout == digest(workspace).stdout


def test_digest_under_the_other_scheme(workspace: Path) -> None:
    expected = workspace_digest(scan(workspace).tree, DigestScheme.NONOKA_1).hex()
    assert digest(workspace, "--scheme", "nonoka/1").stdout == f"sha256:{expected}\n"


def test_digest_as_json(workspace: Path) -> None:
    result = scan(workspace)
    answer = json.loads(digest(workspace, "--json", "--full").stdout)
    assert answer == {
        "scheme": "workseal-tree/1",
        "digest": f"sha256:{result.tree.digest.hex()}",
        "root": str(workspace.resolve()),
        "entries": 3,
        "unreadable": [],
        "unstable": [],
        "policy_digest": f"sha256:{result.policy.digest}",
        "scan": "full",
    }


def test_digest_as_json_counts_what_the_scheme_lists(workspace: Path) -> None:
    assert json.loads(digest(workspace, "--json", "--scheme", "nonoka/1").stdout)["entries"] == 2


def test_check(workspace: Path) -> None:
    printed = digest(workspace).stdout.strip()
    assert digest(workspace, "--check", printed).exit_code == 0
    (workspace / "a").write_text("3")
    differs = digest(workspace, "--check", printed)
    assert differs.exit_code == 1
    assert "differs" in differs.stderr
    assert differs.stdout == digest(workspace).stdout


def test_fast_prints_xxh3_over_the_same_form(workspace: Path) -> None:
    def content(data: bytes) -> bytes:
        return xxhash.xxh3_128_digest(data)

    import hashlib

    directory = b"workseal-tree/1\0" + b"ff\0" + content(b"1")
    root = b"workseal-tree/1\0" + b"fa\0" + content(b"2") + b"dd\0" + hashlib.sha256(directory).digest()
    assert digest(workspace, "--fast").stdout == f"xxh3:{xxhash.xxh3_128_hexdigest(root)}\n"
    assert json.loads(digest(workspace, "--fast", "--json").stdout)["scheme"] == "xxh3"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["{w}", "--fast", "--check", "sha256:" + "0" * 64], id="fast and check"),
        pytest.param(["{w}", "--fast", "--scheme", "nonoka/1"], id="fast and nonoka"),
        pytest.param(["{w}", "--check", "0" * 64], id="digest without its name"),
        pytest.param(["{w}", "--check", "xxh3:" + "0" * 32], id="xxh3 as digest"),
        pytest.param(["{w}", "--scheme", "workseal-tree/2"], id="unknown scheme"),
        pytest.param(["{w}/nothing"], id="no such directory"),
        pytest.param(["{w}/a"], id="a file"),
        pytest.param(["{w}", "{w}"], id="two directories"),
    ],
)
def test_usage_and_input_errors_are_2(arguments: list[str], workspace: Path) -> None:
    answer = digest(*(each.format(w=workspace) for each in arguments))
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "Error" in answer.stderr


def test_scheme_that_cannot_represent_the_tree_is_2(workspace: Path) -> None:
    Path(os.fsdecode(os.fsencode(workspace) + b"/\xff")).write_text("x")
    answer = digest(workspace, "--scheme", "nonoka/1")
    assert answer.exit_code == 2
    assert "\\xff" in answer.stderr


def test_manifest_lists_entries_in_order(workspace: Path, tmp_path: Path) -> None:
    header, *lines = [json.loads(line) for line in save(workspace, tmp_path / "m").read_text().splitlines()]
    assert header["digest"] == digest(workspace).stdout.strip()
    assert [(line["path"], line["type"]) for line in lines] == [
        ("a", "file"),
        ("d", "directory"),
        ("d/f", "file"),
    ]


def test_diff_of_equal_directories_is_0(workspace: Path, tmp_path: Path) -> None:
    assert diff(workspace, workspace).exit_code == 0
    saved = save(workspace, tmp_path / "m")
    for pair in ((saved, workspace), (workspace, saved), (saved, saved)):
        answer = diff(*pair)
        assert (answer.exit_code, answer.stdout) == (0, "")


def test_diff_lists_what_changed(workspace: Path, tmp_path: Path) -> None:
    saved = save(workspace, tmp_path / "m")
    (workspace / "a").write_text("3")
    (workspace / "d" / "f").unlink()
    (workspace / "tab\t").write_text("1")
    answer = diff(saved, workspace)
    assert (answer.exit_code, answer.stdout) == (1, "modified\ta\ndeleted\td/f\ncreated\ttab\\x09\n")


def test_diff_as_json_has_the_form_of_receipts(workspace: Path, tmp_path: Path) -> None:
    saved = save(workspace, tmp_path / "m")
    (workspace / "a").chmod(0o755)
    (workspace / "d" / "f").unlink()
    (workspace / "n").write_text("1")
    one = {"sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}
    two = {"sha256": "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"}
    assert json.loads(diff(saved, workspace, "--json").stdout) == {
        "scheme": "workseal-tree/1",
        "created": [{"path": "n", "type": "file", "digest": one}],
        "modified": [
            {
                "path": "a",
                "before": {"type": "file", "digest": two},
                "after": {"type": "executable", "digest": two},
            }
        ],
        "deleted": [{"path": "d/f", "type": "file", "digest": one}],
    }


def test_diff_looks_at_a_directory_under_the_scheme_of_the_manifest(workspace: Path, tmp_path: Path) -> None:
    saved = save(workspace, tmp_path / "m", "--scheme", "nonoka/1")
    (workspace / "a").chmod(0o755)
    (workspace / "empty").mkdir()
    assert diff(saved, workspace).exit_code == 0
    (workspace / "d" / "f").write_text("2")
    assert diff(saved, workspace).stdout == "modified\td/f\n"


def test_diff_of_different_schemes_is_refused(workspace: Path, tmp_path: Path) -> None:
    tree, nonoka = save(workspace, tmp_path / "t"), save(workspace, tmp_path / "n", "--scheme", "nonoka/1")
    for arguments in ((tree, nonoka), (tree, workspace, "--scheme", "nonoka/1")):
        answer = diff(*arguments)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert "schemes" in answer.stderr


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"not a manifest\n", None])
def test_diff_of_something_that_is_no_manifest_is_2(
    content: bytes | None, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    assert diff(other, workspace).exit_code == 2


def test_diff_says_when_the_ignore_rules_are_others(workspace: Path, tmp_path: Path) -> None:
    saved = save(workspace, tmp_path / "m")
    (workspace / ".worksealignore").write_text("x\n")
    answer = diff(saved, workspace)
    assert answer.stdout == "created\t.worksealignore\n"
    assert "different ignore rules" in answer.stderr


def test_diff_is_not_certain_of_what_could_not_be_read(workspace: Path, tmp_path: Path) -> None:
    saved = save(workspace, tmp_path / "m")
    header, *lines = saved.read_text().splitlines()
    saved.write_text("\n".join([json.dumps(json.loads(header) | {"unstable": ["a"]}), *lines]))
    answer = diff(saved, workspace)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "would not hold still" in answer.stderr


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A configuration in the usual place that ignores one of the two files."""
    file = tmp_path / "config" / "workseal" / "workseal.toml"
    file.parent.mkdir(parents=True)
    file.write_text('ignore = ["/a"]')
    return file


def ignoring(workspace: Path, pattern: str) -> ScanResult:
    with WorkspaceRoot.open(workspace) as root:
        return Scanner(root, config_patterns=(pattern,)).scan()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_the_ignore_patterns_of_the_configuration_count(
    workspace: Path, configured: Path, options: list[str]
) -> None:
    expected = ignoring(workspace, "/a")
    answer = digest(workspace, *options).stdout
    assert expected.tree.digest.hex() in answer
    assert expected.policy.digest in answer or not options


def test_another_configuration_can_be_named(workspace: Path, configured: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('ignore = ["d"]')
    expected = ignoring(workspace, "d").tree.digest.hex()
    assert digest(workspace, "--config", other).stdout == f"sha256:{expected}\n"


def test_the_configuration_can_be_left_aside(workspace: Path, configured: Path) -> None:
    assert digest(workspace, "--no-config").stdout == f"sha256:{scan(workspace).tree.digest.hex()}\n"


def test_a_manifest_and_a_diff_go_by_the_configuration(
    workspace: Path, configured: Path, tmp_path: Path
) -> None:
    saved = save(workspace, tmp_path / "saved")
    (workspace / "a").write_text("ignored")
    assert '"a"' not in saved.read_text()
    assert diff(saved, workspace).exit_code == 0
    assert diff(saved, workspace, "--no-config").stdout == "created\ta\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("ignore = 5", "ignore: ", id="malformed"),
        pytest.param('ignore = ["a\\nb"]', "more than one line", id="two-lines"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(
    workspace: Path, configured: Path, text: str, words: str
) -> None:
    configured.write_text(text)
    answer = digest(workspace)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_a_configuration_in_the_directory_is_never_read(workspace: Path) -> None:
    (workspace / "mine.toml").write_text('ignore = ["/a"]')
    answer = digest(workspace, "--config", workspace / "mine.toml")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "--no-config" in answer.stderr


def test_one_configuration_or_none(workspace: Path, configured: Path) -> None:
    assert digest(workspace, "--config", configured, "--no-config").exit_code == 2

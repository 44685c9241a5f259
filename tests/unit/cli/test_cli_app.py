"""The command line as a whole, without a host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from support.environment import unmeasured
from workseal.cli.keys import run_keys
from workseal.cli.main import CLIENT_VERBS, HOST_KEY_COMMANDS, HOST_VERBS, KEY_COMMANDS
from workseal_host.cli.app import VERBS, app
from workseal_host.cli.keys import keys_group

NO_FILE = "no file, the defaults: good, "


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory, and no configuration."""
    monkeypatch.setenv("WORKSEAL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("WORKSEAL_CONFIG", raising=False)
    monkeypatch.delenv("WORKSEAL_SOCKET", raising=False)
    return tmp_path / "state"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_loads(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("name", [name for name in VERBS if name != "verify"])
def test_every_verb_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])

    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_help_lists_every_verb_in_order() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout

    places = [text.index(f"\n  {name} ") for name in VERBS]
    assert places == sorted(places)


def test_an_unknown_verb_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["nope"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such command 'nope'" in result.stderr


def test_version_is_a_result() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("workseal, version ")


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        pytest.param(["--help"], {"grpc", "cryptography", "rich", "asyncio", "sqlite3"}, id="help"),
        pytest.param(
            ["digest", "."], {"grpc", "cryptography", "rich", "structlog", "asyncio", "sqlite3"}, id="digest"
        ),
        pytest.param(["run", "--help"], {"grpc", "cryptography", "rich", "structlog"}, id="run-help"),
        pytest.param(["receipts", "list"], {"grpc"}, id="receipts-without-a-host"),
    ],
)
def test_a_verb_loads_no_more_than_it_needs(
    arguments: list[str], unwanted: set[str], state: Path, tmp_path: Path
) -> None:
    script = (
        "import sys; from workseal.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        f"print(sorted(set(sys.modules) & {unwanted!r}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=unmeasured(),
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert done.stderr.decode().splitlines()[-1] == "[]"


def test_the_client_knows_the_key_commands_by_heart() -> None:
    for name in KEY_COMMANDS:
        with pytest.raises(SystemExit) as end:
            run_keys([name, "--help"])
        assert end.value.code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["status"], id="status"),
        pytest.param(["healthcheck"], id="healthcheck"),
        pytest.param(["receipts", "list", "--socket", "nobody.sock"], id="receipts-of-a-named-socket"),
        pytest.param(["status", "--socket", "nobody.sock"], id="named-socket"),
    ],
)
def test_without_a_host_the_code_is_3(arguments: list[str], state: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*arguments, "-C", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (3, "")
    assert "workseal serve" in result.stderr


@pytest.mark.parametrize("arguments", [["list"], ["show", "1"]], ids=" ".join)
def test_where_nothing_ever_ran_there_are_no_receipts(
    arguments: list[str], state: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["receipts", *arguments, "-C", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"workseal: there are no receipts of {tmp_path.resolve()}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["keys"], ["receipts"]], ids=lambda words: " ".join(words) or "none"
)
def test_without_a_verb_the_help_is_printed(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code in (0, 2)
    assert result.stdout.startswith("Usage: ")
    assert "\nCommands:\n" in result.stdout
    assert "\\x0a" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(["run", "--challenge", "abc", "--", "true"], id="run"),
        pytest.param(["exec", "--challenge", "abc", "bash"], id="exec"),
    ],
)
def test_a_bad_challenge_is_explained_without_python(verb: list[str], state: Path) -> None:
    result = CliRunner().invoke(app, verb)

    assert "43 characters" in result.stderr
    assert "()" not in result.stderr


def test_the_client_knows_the_verbs_of_the_host() -> None:
    assert set(HOST_VERBS) | set(CLIENT_VERBS) == set(VERBS)
    assert set(HOST_KEY_COMMANDS) | KEY_COMMANDS == set(keys_group.commands)


def test_exec_without_a_host_is_125(state: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["exec", "bash", "-C", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (125, "")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["exec"], id="no-tool"),
        pytest.param(["exec", "bash", "--nope"], id="unknown-option"),
        pytest.param(["exec", "bash", "--args", "[]"], id="not-an-object"),
        pytest.param(["exec", "bash", "--args", '{"a":1,"a":2}'], id="duplicate-key"),
        pytest.param(["exec", "bash", "--args", "@/nope"], id="unreadable-arguments"),
        pytest.param(["exec", "bash", "--challenge", "short"], id="bad-challenge"),
        pytest.param(["exec", "bash", "--session", ""], id="empty-session"),
        pytest.param(["exec", "bash", "--call", "a\x1bb"], id="control-character"),
        pytest.param(["exec", "bash", "--timeout", "nan"], id="time-out-nan"),
        pytest.param(["exec", "bash", "--receipt", "-"], id="receipt-on-stdout"),
        pytest.param(["exec", "bash", "--receipt", "/nope/r.json"], id="receipt-nowhere"),
        pytest.param(["run"], id="no-command"),
        pytest.param(["run", "--nope", "--", "true"], id="unknown-run-option"),
        pytest.param(["run", "--timeout", "0", "--", "true"], id="run-time-out-zero"),
        pytest.param(["run", "--challenge", "short", "--", "true"], id="run-bad-challenge"),
        pytest.param(["run", "--receipt", ".", "--", "true"], id="run-receipt-is-a-directory"),
        pytest.param(["run", "-C", "/nope", "--", "true"], id="run-no-workspace"),
        pytest.param(["run", "--", "printf", "a\udcff"], id="run-not-utf8"),
    ],
)
def test_misuse_of_run_and_exec_is_125(arguments: list[str], state: Path) -> None:
    result = CliRunner().invoke(app, arguments)

    assert (result.exit_code, result.stdout) == (125, "")
    assert "workseal: " in result.stderr
    assert not state.exists()


def test_validate_tells_what_serve_would_load(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "workseal.toml"
    file.write_text('[tools.lint]\ndescription = "d"\nargv = ["true"]\n')

    result = CliRunner().invoke(app, ["validate", "--json", str(file)])

    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["valid"], found["file"]) == (True, str(file))
    assert "lint" in found["tools"]


def test_validate_without_a_file_checks_the_defaults(state: Path) -> None:
    result = CliRunner().invoke(app, ["validate"])

    assert result.exit_code == 0
    assert result.stdout.startswith(NO_FILE)


def test_validate_names_an_unknown_key(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "workseal.toml"
    file.write_text("isolatoin = 'none'\n")

    result = CliRunner().invoke(app, ["validate", str(file)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "isolatoin" in result.stderr


def test_validate_names_the_key_in_json_too(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "workseal.toml"
    file.write_text("isolation = 'strong'\n")

    result = CliRunner().invoke(app, ["validate", "--json", str(file)])

    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["valid"], found["key"]) == (False, "isolation")


def test_validate_refuses_a_file_in_the_workspace(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "workseal.toml"
    file.touch()

    result = CliRunner().invoke(app, ["validate", str(file), "--workspace", str(tmp_path)])

    assert result.exit_code == 2
    assert "lies in the workspace" in result.stderr


@pytest.mark.parametrize(
    "writable",
    [pytest.param("outer/state/inside", id="in-the-state"), pytest.param("outer", id="around-the-state")],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_validate_refuses_a_writable_path_that_serve_would_refuse(
    state: Path, tmp_path: Path, writable: str, as_json: bool
) -> None:
    (tmp_path / "outer" / "state" / "inside").mkdir(parents=True)
    file = tmp_path / "workseal.toml"
    file.write_text(f'isolation = "none"\nwritable_paths = ["{tmp_path / writable}"]\n')
    before = sorted(tmp_path.rglob("*"))
    options = ["--state-dir", str(tmp_path / "outer" / "state"), *(["--json"] if as_json else [])]

    result = CliRunner().invoke(app, ["validate", str(file), *options])

    assert result.exit_code == 2
    assert "own directory" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
    if as_json:
        assert json.loads(result.stdout)["valid"] is False


def test_validate_takes_the_file_that_the_environment_names(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKSEAL_CONFIG", str(tmp_path / "gone.toml"))

    result = CliRunner().invoke(app, ["validate"])

    assert result.exit_code == 2
    assert "gone.toml" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])

    assert result.exit_code == 0
    assert "_WORKSEAL_COMPLETE" in result.stdout

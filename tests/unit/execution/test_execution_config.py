"""The configuration: complete, strict, and never from the workspace."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from workseal_host.config import HostConfig, default_config_path, load_config, parse_config
from workseal_host.errors import ConfigError
from workseal_host.execution.registry import SideEffects

TOOL = '[tools.lint]\ndescription = "Lint"\nargv = ["ruff", "--", "{file}"]\n'
SCHEMA = '[tools.lint.schema.properties.file]\ntype = "string"\n'


def test_a_host_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    config = load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert config == HostConfig.default()
    assert ".worksealignore" in config.protected_paths
    assert config.registry().names() == [
        "bash",
        "delete_file",
        "edit_file",
        "read_file",
        "search_and_replace",
        "write_file",
    ]


def test_every_setting_is_read(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem", "ca.pem"):
        (tmp_path / name).touch()
    config = parse_config(
        f"""
        scheme = "nonoka/1"
        scan = "full"
        isolation = "none"
        writable_paths = ["~/.cache", "/var/cache/x"]
        environment = ["CARGO_HOME"]
        ignore = ["*.log"]
        protected_paths = []
        include_arguments = true
        shutdown_grace_s = 0
        default_timeout_s = 5
        output_head_bytes = 10
        output_tail_bytes = 20
        [tls]
        listen = "127.0.0.1:7443"
        cert = "{tmp_path}/c.pem"
        key = "{tmp_path}/k.pem"
        client_ca = "{tmp_path}/ca.pem"
        """
        + TOOL
        + 'cwd = "src"\ntimeout_s = 2.5\nnetwork = false\nconfined = true\nread_only = true\n'
        + SCHEMA
    )
    assert (config.scheme, config.scan, config.isolation) == ("nonoka/1", "full", "none")
    assert config.protected_paths == ()
    assert config.tls is not None
    assert config.tls.client_ca == f"{tmp_path}/ca.pem"
    assert config.registry().get("bash").default_timeout_s == 5
    (tool,) = config.tools
    assert (tool.cwd, tool.timeout_s, tool.network, tool.confined) == ("src", 2.5, False, True)
    assert tool.side_effects == SideEffects(True, False, False, False)
    assert tool.schema["additionalProperties"] is False


def test_a_command_tool_is_undeclared_means_mutating_exclusive_and_stateful() -> None:
    (tool,) = parse_config(TOOL + SCHEMA).tools
    assert tool.side_effects == SideEffects(False, True, True, True)


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        pytest.param("isolaton = 'none'", "isolaton", id="unknown-key"),
        pytest.param("[tls]\nlisten='a:1'\ncert='/x'\nkey='/x'\n", "tls.cert", id="no-such-file"),
        pytest.param("[tls]\nlisten='a'\n", "tls.listen", id="listen-without-port"),
        pytest.param("[tls]\ncert='/x'\n", "tls.listen", id="tls-without-listen"),
        pytest.param("isolation = 'docker'", "isolation", id="unknown-choice"),
        pytest.param("scan = 'watch'", "scan", id="reserved-choice"),
        pytest.param("include_arguments = 'false'", "include_arguments", id="text-is-no-flag"),
        pytest.param("include_arguments = 0", "include_arguments", id="number-is-no-flag"),
        pytest.param("default_timeout_s = true", "default_timeout_s", id="flag-is-no-number"),
        pytest.param("default_timeout_s = 0", "default_timeout_s", id="no-time"),
        pytest.param("default_timeout_s = nan", "default_timeout_s", id="not-a-number"),
        pytest.param("output_head_bytes = 999999999", "output_head_bytes", id="too-much-output"),
        pytest.param("environment = ['A=b']", "environment.0", id="not-a-name"),
        pytest.param("environment = 'A'", "environment", id="not-a-list"),
        pytest.param("writable_paths = ['cache']", "writable_paths.0", id="relative-path"),
        pytest.param('ignore = ["a", "b\\nc"]', "ignore.1", id="two-lines-of-ignore-patterns"),
        pytest.param("tools = 1", "tools", id="tools-is-a-table"),
        pytest.param("[tools]\nlint = 1", "tools.lint", id="tool-is-a-table"),
        pytest.param("[tools.'a b']\n", "tools.a b", id="tool-name"),
        pytest.param("[tools.x]\nargv = ['p']", "tools.x.description", id="no-description"),
        pytest.param("[tools.x]\ndescription = 'd'", "tools.x.argv", id="no-program"),
        pytest.param(TOOL + "shell = true\n" + SCHEMA, "tools.lint.shell", id="unknown-tool-key"),
        pytest.param(TOOL, "tools.lint.argv.2", id="placeholder-without-property"),
        pytest.param(TOOL + "cwd = '/etc'\n" + SCHEMA, "tools.lint.cwd", id="cwd-outside"),
        pytest.param(
            TOOL + "read_only = true\nmutates_workspace = true\n" + SCHEMA,
            "tools.lint.read_only",
            id="contradiction",
        ),
        pytest.param(
            TOOL + "[tools.lint.schema.properties.file]\n'$ref' = 'http://x.invalid'\n",
            "tools.lint.schema.properties.file.$ref",
            id="remote-schema",
        ),
        pytest.param(
            TOOL.replace("lint", "bash") + SCHEMA.replace("lint", "bash"), "tools.bash", id="built-in-name"
        ),
        pytest.param("[tools.run]\ndescription = 'd'\nargv = ['p']", "tools.run", id="reserved-name"),
        pytest.param("scheme = ", "", id="not-toml"),
    ],
)
def test_a_fault_names_its_key(toml: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(toml)
    assert caught.value.key == key


class TestPlace:
    """Where the file may lie."""

    @pytest.fixture
    def work(self, tmp_path: Path) -> Path:
        (tmp_path / "work" / "sub").mkdir(parents=True)
        (tmp_path / "work" / "sub" / "c.toml").touch()
        (tmp_path / "work-evil").mkdir()
        (tmp_path / "work-evil" / "c.toml").touch()
        return tmp_path / "work"

    def test_a_file_in_the_workspace_is_refused(self, work: Path) -> None:
        with pytest.raises(ConfigError, match="lies in the workspace"):
            load_config(str(work / "sub" / "c.toml"), workspace=str(work))

    def test_the_variable_and_the_default_place_are_no_way_around(self, work: Path) -> None:
        for environment in (
            {"WORKSEAL_CONFIG": str(work / "sub" / "c.toml")},
            {"XDG_CONFIG_HOME": str(work)},
        ):
            with pytest.raises(ConfigError, match="lies in the workspace"):
                load_config(workspace=str(work), environment=environment)

    def test_a_link_that_leads_into_the_workspace_is_refused(self, work: Path, tmp_path: Path) -> None:
        (tmp_path / "link.toml").symlink_to(work / "sub" / "c.toml")
        with pytest.raises(ConfigError, match="lies in the workspace"):
            load_config(str(tmp_path / "link.toml"), workspace=str(work))

    def test_a_link_in_the_workspace_is_refused_wherever_it_leads(self, work: Path) -> None:
        (work / "link.toml").symlink_to(work.parent / "work-evil" / "c.toml")
        with pytest.raises(ConfigError, match="lies in the workspace"):
            load_config(str(work / "link.toml"), workspace=str(work))

    @pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
    def test_a_link_on_the_way_that_lies_in_the_workspace_is_refused(
        self, work: Path, tmp_path: Path, relative: bool
    ) -> None:
        (work / "sub" / "re-pointed").symlink_to("../../work-evil" if relative else tmp_path / "work-evil")
        (tmp_path / "config").symlink_to("work/sub/re-pointed" if relative else work / "sub" / "re-pointed")
        with pytest.raises(ConfigError, match="lies in the workspace"):
            load_config(str(tmp_path / "config" / "c.toml"), workspace=str(work))

    def test_links_that_lead_in_a_circle_are_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "circle").symlink_to("circle")
        with pytest.raises(ConfigError, match="cannot read"):
            load_config(str(tmp_path / "circle" / "c.toml"), workspace=str(tmp_path / "work"))

    @pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
    def test_a_file_in_one_of_its_own_writable_paths_is_refused(self, tmp_path: Path, linked: bool) -> None:
        place = tmp_path / "caches" / "workseal"
        place.mkdir(parents=True)
        file = tmp_path / "c.toml" if linked else place / "c.toml"
        file.write_text(f'writable_paths = ["{tmp_path}/caches"]')
        if linked:
            (place / "c.toml").symlink_to(file)
        with pytest.raises(ConfigError, match="lies in the writable path"):
            load_config(str(place / "c.toml"))

    def test_another_spelling_of_the_workspace_is_no_way_around(self, work: Path, tmp_path: Path) -> None:
        (tmp_path / "alias").symlink_to(work)
        with pytest.raises(ConfigError, match="lies in the workspace"):
            load_config(str(work / "sub" / "c.toml"), workspace=str(tmp_path / "alias"))

    def test_f43_a_sibling_with_the_same_prefix_is_outside(self, work: Path) -> None:
        config = load_config(str(work.parent / "work-evil" / "c.toml"), workspace=str(work))
        assert config.source == str(work.parent / "work-evil" / "c.toml")


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "not-utf8", "writable-by-all", "huge"])
def test_a_named_file_that_cannot_be_used_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c.toml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes({"not-utf8": b"\xff", "huge": b"#" * 2_000_000}.get(kind, b""))
        path.chmod(0o666 if kind == "writable-by-all" else 0o600)
    with pytest.raises(ConfigError):
        load_config(str(path))


def test_the_default_place_follows_the_environment() -> None:
    assert default_config_path({"XDG_CONFIG_HOME": "/x"}) == "/x/workseal/workseal.toml"


@pytest.mark.parametrize("name", ["tools.md", "configuration.md"])
def test_the_examples_of_the_documentation_load(name: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / name).read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        parse_config(example)


def test_a_path_that_only_steps_up_from_the_workspace_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "x.toml").write_text('scan = "full"\n')
    monkeypatch.chdir(tmp_path / "work")
    assert load_config("../x.toml", workspace=".").scan == "full"
    with pytest.raises(ConfigError, match="--config"):
        load_config("./y.toml", workspace=".")

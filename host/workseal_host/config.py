"""The host's configuration: ``workseal.toml``.

Invariants: it is never read from inside the workspace, where tools could write it; a key that is not known is
an error, never ignored; what is loaded is complete and valid, so that nobody checks it again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from workseal_host.config_file import CONFIG_VARIABLE, default_config_path
from workseal_host.errors import ConfigError, IgnoreRulesError
from workseal_host.execution.isolation import IsolationMode
from workseal_host.execution.output import HEAD_BYTES, TAIL_BYTES
from workseal_host.execution.registry import ToolRegistry, build_registry
from workseal_host.execution.tool import DEFAULT_TIMEOUT_S, SideEffects
from workseal_host.execution.tools.command import CommandTool, CommandToolSpec
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.limits import DEFAULT_MAX_FILE_BYTES, DEFAULT_SCAN_TIMEOUT_S

MAX_CONFIG_BYTES = 1024 * 1024
DEFAULT_SHUTDOWN_GRACE_S = 30.0
# What makes an agent's host or editor run code or change its own rules.
DEFAULT_PROTECTED_PATHS = (
    ".worksealignore",
    ".opencode/**",
    "opencode.json*",
    ".mcp.json",
    ".claude/**",
    ".cursor/**",
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# Four of them, each byte replaced by three, fit a gRPC message of 4 MiB.
_MAX_KEPT_BYTES = 256 * 1024
# Its receipts say that a person ran the command; no tool of the daemon may say so.
_RUN_TOOL = "run"
_MAX_SECONDS = 24 * 3600.0
_MAX_FILE_BYTES = 2**53 - 1
_MAX_LINKS = 40  # as Linux itself


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """``[tls]``: the host on TCP, which it never is without TLS.

    Args:
        listen: ``host:port``.
        certificate: path of the PEM certificate chain.
        private_key: path of its PEM private key.
        client_ca: path of the PEM certificates that client certificates must chain to; None asks for none.
    """

    listen: str
    certificate: str
    private_key: str
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The whole configuration; every field is a key of ``docs/configuration.md``."""

    scheme: Literal["workseal-tree/1", "nonoka/1"] = "workseal-tree/1"
    scan: Literal["full", "stat"] = "stat"
    scan_timeout_s: float = DEFAULT_SCAN_TIMEOUT_S
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    isolation: IsolationMode = "auto"
    writable_paths: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    protected_paths: tuple[str, ...] = DEFAULT_PROTECTED_PATHS
    include_arguments: bool = False
    shutdown_grace_s: float = DEFAULT_SHUTDOWN_GRACE_S
    default_timeout_s: float = DEFAULT_TIMEOUT_S
    output_head_bytes: int = HEAD_BYTES
    output_tail_bytes: int = TAIL_BYTES
    tls: TlsConfig | None = None
    tools: tuple[CommandToolSpec, ...] = ()
    source: str | None = None

    @classmethod
    def default(cls) -> HostConfig:
        """Return the configuration of a host that has no file."""
        return cls()

    def registry(self) -> ToolRegistry:
        """Return the built-in tools and the configured ones."""
        return build_registry(self.tools, bash_timeout_s=self.default_timeout_s)


def load_config(
    path: str | None = None,
    *,
    workspace: str | bytes | None = None,
    environment: Mapping[str, str] = os.environ,
) -> HostConfig:
    """Load the configuration.

    Args:
        path: the file; without one ``$WORKSEAL_CONFIG``, else the default place, where it may be missing.
        workspace: the workspace to be served; a file in there is refused.
        environment: where variables are looked up.

    Raises:
        ConfigError: with the dotted key; also for a file that is missing, unreadable, or lies in the
            workspace or one of its own writable paths.
    """
    named = path or environment.get(CONFIG_VARIABLE)
    file = named or default_config_path(environment)
    # Before it is even opened: a FIFO or a huge file put there by a tool must not matter.
    if workspace is not None:
        _refuse_inside(file, os.fsencode(workspace), "the workspace")
    if not named and not os.path.lexists(file):
        return HostConfig.default()
    config = parse_config(_read(file), source=os.path.realpath(file))
    for writable in config.writable_paths:
        _refuse_inside(file, os.fsencode(os.path.expanduser(writable)), f"the writable path {writable}")
    return config


def parse_config(text: str, *, source: str | None = None) -> HostConfig:
    """Parse the text of a configuration.

    Args:
        text: TOML.
        source: where it came from, kept for messages.

    Raises:
        ConfigError: with the dotted key.
    """
    try:
        table = _Table(tomllib.loads(text), "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from error
    config = HostConfig(
        scheme=cast(Any, table.choice("scheme", "workseal-tree/1", ("workseal-tree/1", "nonoka/1"))),
        scan=cast(Any, table.choice("scan", "stat", ("full", "stat"))),
        scan_timeout_s=table.seconds("scan_timeout_s", DEFAULT_SCAN_TIMEOUT_S),
        max_file_bytes=table.size("max_file_bytes", DEFAULT_MAX_FILE_BYTES, most=_MAX_FILE_BYTES),
        isolation=cast(Any, table.choice("isolation", "auto", ("auto", "bubblewrap", "none"))),
        writable_paths=table.texts("writable_paths", ()),
        environment=table.texts("environment", (), pattern=_VARIABLE),
        ignore=table.texts("ignore", ()),
        protected_paths=table.texts("protected_paths", DEFAULT_PROTECTED_PATHS),
        include_arguments=table.flag("include_arguments", False),
        shutdown_grace_s=table.seconds("shutdown_grace_s", DEFAULT_SHUTDOWN_GRACE_S, least=0.0),
        default_timeout_s=table.seconds("default_timeout_s", DEFAULT_TIMEOUT_S),
        output_head_bytes=table.size("output_head_bytes", HEAD_BYTES),
        output_tail_bytes=table.size("output_tail_bytes", TAIL_BYTES),
        tls=_tls(table.table("tls")),
        tools=tuple(_tools(table.table("tools"), table.seconds("default_timeout_s", DEFAULT_TIMEOUT_S))),
        source=source,
    )
    _require_absolute(config.writable_paths)
    _require_patterns(config.ignore)
    table.refuse_unknown()
    config.registry()  # names that collide, with each other or with built-in tools
    return config


class _Table:
    """One TOML table whose keys are all asked for, or refused."""

    def __init__(self, values: Mapping[str, Any], key: str) -> None:
        self._values = values
        self._key = key
        self._asked: set[str] = set()

    def key(self, name: str) -> str:
        return f"{self._key}.{name}" if self._key else name

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        return name in self._values

    def take(self, name: str, default: Any, expected: str, *types: type) -> Any:
        self._asked.add(name)
        value = self._values.get(name, default)
        # bool is an int to Python, and must not pass for one.
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if wrong and value is not default:
            raise ConfigError(f"must be {expected}", key=self.key(name))
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.take(name, default, "a text", str)
        if not value and default is None:
            raise ConfigError("is missing or empty", key=self.key(name))
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.take(name, default, "true or false", bool))

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.take(name, default, "a text", str)
        if value not in choices:
            raise ConfigError(f"must be one of {', '.join(choices)}", key=self.key(name))
        return str(value)

    def texts(
        self, name: str, default: tuple[str, ...], *, pattern: re.Pattern[str] | None = None
    ) -> tuple[str, ...]:
        values = self.take(name, default, "a list of texts", list)
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value or (pattern and not pattern.fullmatch(value)):
                what = "a variable's name" if pattern else "a text that is not empty"
                raise ConfigError(f"must be {what}", key=f"{self.key(name)}.{index}")
        return tuple(values)

    def seconds(self, name: str, default: float, *, least: float = 0.001) -> float:
        value = float(self.take(name, default, "a number of seconds", int, float))
        if not least <= value <= _MAX_SECONDS:
            raise ConfigError(f"must be between {least:g} and {_MAX_SECONDS:g} seconds", key=self.key(name))
        return value

    def size(self, name: str, default: int, *, most: int = _MAX_KEPT_BYTES) -> int:
        value = self.take(name, default, "a number of bytes", int)
        if not 1 <= value <= most:
            raise ConfigError(f"must be between 1 and {most} bytes", key=self.key(name))
        return int(value)

    def table(self, name: str) -> _Table | None:
        values = self.take(name, None, "a table", dict)
        return None if values is None else _Table(values, self.key(name))

    def refuse_unknown(self) -> None:
        unknown = sorted(set(self._values) - self._asked)
        if unknown:
            known = ", ".join(sorted(self._asked))
            raise ConfigError(f"is not a known key; known here: {known}", key=self.key(unknown[0]))


def _tls(table: _Table | None) -> TlsConfig | None:
    if table is None:
        return None
    listen = table.text("listen")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigError("must be host:port, such as 127.0.0.1:7443", key=table.key("listen"))
    client_ca = table.text("client_ca") if table.has("client_ca") else None
    config = TlsConfig(listen, table.text("cert"), table.text("key"), client_ca)
    for name, file in (
        ("cert", config.certificate),
        ("key", config.private_key),
        ("client_ca", config.client_ca),
    ):
        if file is not None and not (os.path.isabs(file) and os.path.isfile(file)):
            raise ConfigError("must be the absolute path of an existing PEM file", key=table.key(name))
    table.take("client_ca", None, "a text", str)
    table.refuse_unknown()
    return config


def _tools(table: _Table | None, default_timeout_s: float) -> Iterator[CommandToolSpec]:
    for name in table.names() if table is not None else ():
        if not _TOOL_NAME.fullmatch(name):
            raise ConfigError(
                "a tool's name is a letter, then at most 63 letters, digits, '_' or '-'", key=f"tools.{name}"
            )
        if name == _RUN_TOOL:
            raise ConfigError("names what `workseal run` does: choose another name", key=f"tools.{name}")
        tool = cast(_Table, table).table(name)
        yield _tool(name, cast(_Table, tool), default_timeout_s)


def _tool(name: str, table: _Table, default_timeout_s: float) -> CommandToolSpec:
    schema = dict(table.take("schema", {}, "a table", dict))
    spec = CommandToolSpec(
        name=name,
        description=table.text("description"),
        argv=table.texts("argv", ()),
        schema={"type": "object", "additionalProperties": False, **schema},
        side_effects=_side_effects(table),
        timeout_s=table.seconds("timeout_s", default_timeout_s),
        network=table.flag("network", True),
        cwd=table.text("cwd", ""),
        confined=table.flag("confined", False),
    )
    table.refuse_unknown()
    try:
        CommandTool(spec)
    except ConfigError as error:
        raise ConfigError(str(error), key=table.key(error.key)) from error
    return spec


def _side_effects(table: _Table) -> SideEffects:
    read_only = table.flag("read_only", False)
    effects = SideEffects(
        read_only=read_only,
        mutates_workspace=table.flag("mutates_workspace", not read_only),
        exclusive=table.flag("exclusive", not read_only),
        stateful_action=table.flag("stateful_action", not read_only),
        pagination=table.flag("pagination", False),
    )
    if read_only and (effects.mutates_workspace or effects.stateful_action):
        raise ConfigError(
            "contradicts mutates_workspace or stateful_action: leave out one of them",
            key=table.key("read_only"),
        )
    return effects


def _require_absolute(paths: tuple[str, ...]) -> None:
    for index, path in enumerate(paths):
        if not path.startswith(("/", "~/")):
            raise ConfigError("must be an absolute path, or begin with ~/", key=f"writable_paths.{index}")


def _require_patterns(patterns: tuple[str, ...]) -> None:
    for index, pattern in enumerate(patterns):
        try:
            IgnorePolicy(config=(pattern,))
        except IgnoreRulesError as error:
            raise ConfigError(str(error), key=f"ignore.{index}") from error


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = file.read(MAX_CONFIG_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a readable file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}") from error
    if not stat.S_ISREG(status.st_mode) or len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} must be a regular file of at most {MAX_CONFIG_BYTES} bytes")
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{path} can be written by everybody: chmod o-w it")
    return text


def _refuse_inside(path: str, top: bytes, what: str) -> None:
    """Refuse a file that a tool could write or re-point; directories are compared by identity."""
    try:
        root = os.stat(top)
    except OSError:
        return  # a workspace that cannot be opened is refused elsewhere
    for directory in _directories_on_the_way(path):
        with contextlib.suppress(OSError):
            status = os.stat(directory)
            if (status.st_dev, status.st_ino) == (root.st_dev, root.st_ino):
                raise ConfigError(
                    f"{path} lies in {what}, where tools can write: keep the configuration somewhere"
                    f" else, and name it with --config, ${CONFIG_VARIABLE} or $XDG_CONFIG_HOME"
                )


def _directories_on_the_way(path: str) -> Iterator[str]:
    """Yield every directory that is gone through to reach a file, its links followed one at a time.

    The real path alone would not do: a link on the way to it may lie where tools can write.
    """
    directory, links = "/", 0
    rest = _names(_from_the_top(path))
    while rest and links <= _MAX_LINKS:
        yield directory
        name = rest.pop()
        step = os.path.join(directory, name) if name != ".." else os.path.dirname(directory)
        try:
            target = os.readlink(step)
        except OSError:
            directory = step if rest else directory
            continue
        links += 1
        directory = "/" if target.startswith("/") else directory
        rest += _names(target)


def _from_the_top(path: str) -> str:
    """Return a path as an absolute one; steps up from the working directory do not go through it."""
    if path.startswith("/"):
        return path
    above, rest = os.getcwd(), path
    while rest.startswith(("../", "./")):
        step, _, rest = rest.partition("/")
        above = os.path.dirname(above) if step == ".." else above
    return os.path.join(above, rest)


def _names(path: str) -> list[str]:
    """Return the components of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


__all__ = [
    "HostConfig",
    "TlsConfig",
    "default_config_path",
    "load_config",
    "parse_config",
]

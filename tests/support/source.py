"""Reading the project's own source, for the tests that hold its structure."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
ROOTS = {"workseal": PROJECT / "framework_client", "workseal_host": PROJECT / "host"}
_BUILT = {".venv", ".git", "__pycache__", "node_modules", "site", "dist"}


@dataclass(frozen=True)
class Module:
    """One module of the distribution.

    Args:
        name: dotted name; a package is named without ``__init__``.
        path: its file.
        tree: its syntax tree.
    """

    name: str
    path: Path
    tree: ast.Module

    @property
    def where(self) -> str:
        """Its path below the project."""
        return str(self.path.relative_to(PROJECT))


@cache
def modules() -> dict[str, Module]:
    """Return all modules of both roots by name, generated stubs excepted."""
    found = {}
    for root in ROOTS.values():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if "v1" in parts:
                continue
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_text(), str(path)))
    return found


def imports(module: Module, *, lazy: bool = True) -> set[str]:
    """Return the dotted names that a module imports.

    Args:
        module: the module.
        lazy: whether imports inside functions count.
    """
    found = set()
    for node in ast.walk(module.tree) if lazy else _at_import(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= set(_from(node))
    return found


def _from(node: ast.ImportFrom) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        raise AssertionError("imports are absolute")
    for alias in node.names:
        name = f"{base}.{alias.name}"
        # `from package import module` and `from module import name` look alike.
        yield name if name in modules() or (base == "workseal" and alias.name == "v1") else base


def _at_import(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _at_import(node)


@cache
def project_files() -> tuple[Path, ...]:
    """Return the files of the project: what git tracks or would, or what is there where there is no git."""
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
        names = [Path(name) for name in done.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(PROJECT) for path in PROJECT.rglob("*")]
    return tuple(
        PROJECT / name
        for name in sorted(names)
        if not _BUILT & set(name.parts)
        and not name.name.startswith(".coverage")
        and (PROJECT / name).is_file()
    )


def text_files() -> Iterator[tuple[str, str]]:
    """Yield (path below the project, content) of every file that is UTF-8 text."""
    for path in project_files():
        data = path.read_bytes()
        if b"\0" in data:
            continue
        try:
            yield str(path.relative_to(PROJECT)), data.decode()
        except UnicodeDecodeError:
            continue

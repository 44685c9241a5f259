"""Rules that hold for every file of the project, and that no other tool holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source import PROJECT, Module, modules, project_files, text_files

MAX_FUNCTION_LINES = 60
# Where whatever was raised becomes an answer: of an RPC, of a task, of the process. Else errors are typed.
BOUNDARIES = {
    "host/workseal_host/service/interceptors.py",
    "host/workseal_host/coordination/calls.py",
    "host/workseal_host/cli/boundary.py",
}
HEADINGS = ["## Context", "## Options", "## Decision", "## Consequences"]
ADRS = sorted((PROJECT / "docs" / "adr").glob("*.md"))
Function = ast.FunctionDef | ast.AsyncFunctionDef
# Whom the project's files may point to: specifications, licences, names that can never resolve.
ADDRESSES = re.compile(
    r"https?://(?:"
    r"(?:[\w-]+\.)*(?:invalid|example|test|localhost)\b"
    r"|(?:www\.)?(?:in-toto\.io|json-schema\.org|apache\.org|rfc-editor\.org|slsa\.dev)\b"
    r"|github\.com/(?:in-toto|secure-systems-lab|theupdateframework)/"
    r")"
)
# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a note that something is not done": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "a number from a tracker": re.compile(r"\b[Ii]ss" + r"ue #?\d"),
    "somebody's own directory": re.compile(r"(?<![\w./-])/(?:Users|work|root)/[a-z]"),
    "a merge that was not finished": re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)", re.MULTILINE),
}


def is_public(name: str) -> bool:
    return not name.startswith("_")


def undocumented(module: Module) -> Iterator[str]:
    """Yield what is public in a module and has no docstring.

    A method need not repeat what another class of the module says of the same method:
    the implementations of an interface.
    """
    if module.tree.body and not ast.get_docstring(module.tree):
        yield "the module"
    classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
    explained = {
        item.name
        for owner in classes
        for item in owner.body
        if isinstance(item, Function) and ast.get_docstring(item)
    }
    for node in module.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or not is_public(node.name):
            continue
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (
                f"{node.name}.{item.name}"
                for item in node.body
                if isinstance(item, Function) and is_public(item.name) and item.name not in explained
            )


def broad_handlers(module: Module) -> Iterator[int]:
    """Yield the lines of handlers that catch everything and do not raise it again."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = (
            {item.id for item in ast.walk(node.type) if isinstance(item, ast.Name)} if node.type else set()
        )
        raises = any(isinstance(item, ast.Raise) and item.exc is None for item in ast.walk(node))
        if node.type is None or (names & {"Exception", "BaseException"} and not raises):
            yield node.lineno


def test_everything_public_is_documented() -> None:
    missing = {module.where: list(undocumented(module)) for module in modules().values()}
    assert not {where: names for where, names in missing.items() if names}


def test_nothing_catches_everything_but_the_boundaries() -> None:
    found = {module.where: list(broad_handlers(module)) for module in modules().values()}
    assert {where for where, lines in found.items() if lines} <= BOUNDARIES


def test_functions_stay_short() -> None:
    too_long = [
        f"{module.where}:{node.lineno} {node.name}"
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not too_long


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1} {match.group()}"
        for path, text in text_files()
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert not found


def test_no_file_points_to_a_foreign_address() -> None:
    found = [
        f"{path}: {match.group()}"
        for path, text in text_files()
        if path != "LICENSE"
        for match in re.finditer(r"https?://[\w.-]+(?:/[\w.-]+)*", text)
        if not ADDRESSES.match(match.group() + "/")
    ]
    assert not found


@pytest.mark.parametrize("path", ADRS, ids=lambda path: path.stem)
def test_a_decision_record_has_its_four_parts(path: Path) -> None:
    lines = path.read_text().splitlines()
    number = path.name.partition("-")[0]
    assert re.fullmatch(r"\d{4}", number)
    assert lines[0].startswith(f"# {number} ")
    assert [line for line in lines if line.startswith("## ")] == HEADINGS


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in ADRS] == list(range(1, len(ADRS) + 1))


def test_the_changelog_names_the_version() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (PROJECT / "CHANGELOG.md").read_text()


def links(path: Path) -> Iterator[str]:
    """Yield the targets of a document's links to other files of the project."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in target and not target.startswith("#"):
            yield target.partition("#")[0]


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    assert not [target for target in links(PROJECT / name) if not (PROJECT / target).exists()]


def test_every_document_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (PROJECT / "mkdocs.yml").read_text()))
    there = {str(path.relative_to(PROJECT / "docs")) for path in (PROJECT / "docs").rglob("*.md")}
    assert listed == there


def test_every_test_that_the_security_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (PROJECT / "docs" / "security.md").read_text()))
    there = set()
    for path in (PROJECT / "tests" / "adversarial").glob("*.py"):
        there |= {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function)}
    assert named
    assert not named - there


def test_scripts_can_be_run() -> None:
    scripts = [path for path in project_files() if path.suffix == ".sh"] + [PROJECT / ".ci" / "run"]
    assert not [path.name for path in scripts if not path.stat().st_mode & 0o100]


def test_the_package_says_what_it_exports() -> None:
    script = "import workseal; [getattr(workseal, name) for name in workseal.__all__]"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)

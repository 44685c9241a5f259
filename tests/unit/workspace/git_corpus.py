"""Patterns and paths, made from a seed, and what git says about them.

Every case is a directory of one scratch repository with its own rules files and its
own small tree, so a single git process answers for all of them.
"""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

NAMES = (
    b"a", b"b", b"ab", b"abc", b"a.c", b"a.log", b"b.log", b"build", b"keep", b"x y", b"a ", b"-", b"a-c",
    b"\xc3\xa9", b"e\xcc\x81", b"\xff", b"#a",
    b"!a", b"[a]", b"a]", b"a\\b", b"a\\", b"*", b"A", b"0", b"a\tb", b"ba",
)  # fmt: skip

FIXED_RULES = (
    b"build\n!keep\n",
    b"/a\n",
    b"a/\n",
    b"a/b\n",
    b"**/b\n",
    b"a/**\n",
    b"a/**/b\n",
    b"**\n!a\n",
    b"*\n!*/\n!b\n",
    b"a**b\n",
    b"a**/b\n",
    b"/**/b\n",
    b"**/a/**/b\n",
    b"[a-c]\n",
    b"[!a]\n",
    b"[^a]\n",
    b"[]a]\n",
    b"[!]a]\n",
    b"[a\n",
    b"[[:alpha:]]\n",
    b"[[:space:]]*\n",
    b"[[:nope:]]\n",
    b"[[:alpha]\n",
    b"[a-]\n",
    b"[\\]a]\n",
    b"[--0]\n",
    b"a\\ \n",
    b"a\\\\ \n",
    b"a\\\\\\ \n",
    b"a \n",
    b"a   \n",
    b"\\#a\n\\!a\n",
    b"#a\n",
    b"!a\n",
    b"\\a\n",
    b"a\\\n",
    b"a\\\\b\n",
    b"\\*\n",
    b"a\r\n",
    b"a\rb\n",
    b"\xef\xbb\xbfa\n",
    b"?\n",
    b"??\n",
    b"\xff\n",
    b"[\xc3]\xa9\n",
    b"*\xa9\n",
    b"/\n//\n!\n!/\n",
    b"a//b\n",
    b"./a\n",
    b"a/./b\n",
    b"../a\n",
    b"a\0b\n",
    b"***/b\n",
    b"a/***\n",
    b"**a\n",
    b"a?b\n",
    b"a[/]b\n",
    b"a/*\n!a/b\n",
    b"/*\n!/a\n",
    b"*.log\n!a.log\n",
    b"**\\/b\n",
    b"a",
    b"",
)


@dataclass
class Case:
    """One directory of the scratch repository.

    Attributes:
        rules: directory below the case to content of its rules file.
        paths: raw path below the case to whether it is a directory.
    """

    rules: dict[bytes, bytes]
    paths: dict[bytes, bool] = field(default_factory=dict)


def make_cases(seed: int, count: int) -> list[Case]:
    """Return the fixed cases and ``count`` random ones."""
    rng = random.Random(seed)
    cases = [Case({b"": rules}, _paths(rng)) for rules in FIXED_RULES]
    for _ in range(count):
        paths = _paths(rng)
        rules = {b"": _rules(rng, list(paths))}
        nested = [path for path, is_dir in paths.items() if is_dir]
        if nested and rng.random() < 0.5:
            base = rng.choice(nested)
            below = [path[len(base) + 1 :] for path in paths if path.startswith(base + b"/")]
            rules[base] = _rules(rng, below or list(paths))
        cases.append(Case(rules, paths))
    return cases


def _paths(rng: random.Random) -> dict[bytes, bool]:
    paths: dict[bytes, bool] = {b"a": True, b"a/b": True, b"a/b/a.log": False, b"a/x": True, b"a/x/b": False}
    directories = [b""]
    for _ in range(26):
        parent = rng.choice(directories)
        path = parent + b"/" + rng.choice(NAMES) if parent else rng.choice(NAMES)
        if path not in paths:
            paths[path] = rng.random() < 0.45
            if paths[path] and path.count(b"/") < 4:
                directories.append(path)
    return paths


def _rules(rng: random.Random, paths: list[bytes]) -> bytes:
    return b"\n".join(_pattern(rng, rng.choice(paths)) for _ in range(rng.randint(1, 4))) + rng.choice(
        (b"", b"\n")
    )


def _pattern(rng: random.Random, path: bytes) -> bytes:
    """Return a pattern that has something to do with a path."""
    if rng.random() < 0.5:
        path = path.rpartition(b"/")[2]
    text = b"".join(_mutate(rng, bytes([byte])) for byte in path)
    if rng.random() < 0.15:
        text = rng.choice((b"**/", b"/", b"*/", b"**")) + text
    if rng.random() < 0.15:
        text += rng.choice((b"/**", b"/*", b"*", b"**", b" ", b"\\ ", b"\r"))
    if rng.random() < 0.25:
        text += b"/"
    if rng.random() < 0.25:
        text = b"!" + text
    return text


def _mutate(rng: random.Random, byte: bytes) -> bytes:
    if rng.random() < 0.65:
        return byte
    sets = (
        b"[%s]" % byte,
        b"[!%s]" % byte,
        b"[a-%s]" % byte,
        b"[[:alnum:]]",
        b"[[:punct:]]",
        b"[^/]",
        b"[",
        b"[]-a]",
    )
    if byte == b"/":
        return rng.choice(
            (b"/**/", b"/*/", b"**", b"*", b"**/", b"/**", b"//", b"\\/", b"?", b"[/]", b"/***/")
        )
    return rng.choice((b"?", b"*", b"**", b"\\" + byte, b"*" + byte, byte + b"*", b"", *sets))


def ignored_by_git(cases: list[Case], scratch: Path) -> set[bytes]:
    """Return which paths of all cases git ignores, as ``<number of the case>/<path>``."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
    git = ["git", "-C", str(scratch), "-c", "core.ignoreCase=false", "-c", f"core.excludesFile={os.devnull}"]
    subprocess.run([*git, "init", "-q", "--template="], check=True, env=environment)
    names = []
    for number, case in enumerate(cases):
        base = os.fsencode(scratch) + b"/%d" % number
        os.mkdir(base)
        for path, is_dir in case.paths.items():
            os.mkdir(base + b"/" + path) if is_dir else open(base + b"/" + path, "wb").close()
            names.append(b"%d/%s" % (number, path))
        for directory, content in case.rules.items():
            Path(os.fsdecode(os.path.join(base, directory, b".gitignore"))).write_bytes(content)
    answer = subprocess.run(
        [*git, "check-ignore", "--no-index", "--stdin", "-z"],
        input=b"\0".join(names) + b"\0",
        capture_output=True,
        check=False,
        env=environment,
    )
    assert answer.returncode in (0, 1), answer.stderr
    return set(answer.stdout.split(b"\0")[:-1])

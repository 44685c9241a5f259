"""Trees for tests: hypothesis strategies, and random ones on disk."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

from hypothesis import strategies as st

from unit.workspace import reference
from workseal_host.workspace.model import (
    Directory,
    EntryType,
    Leaf,
    Node,
    make_directory,
    special_leaf,
    unreadable_leaf,
)

# Few, so that trees of one draw have names in common; awkward, so that orders differ.
TEXT_NAMES = (
    "a",
    "b",
    "a.b",
    "a-",
    "a0",
    "A",
    "é",
    "e\u0301",
    "\U0001f600",
    "\ufffd",
    "\ue000",
    "x\ny",
    "b\\",
)
RAW_NAMES = (*(name.encode() for name in TEXT_NAMES), b"\xff", b"a\xfe")


def leaf(content: str, entry_type: EntryType = EntryType.FILE) -> Leaf:
    """Return a leaf that is hashed by some text."""
    return Leaf(entry_type, hashlib.sha256(content.encode()).digest())


def tree(**entries: Node) -> Directory:
    """Return a directory of plain names."""
    return make_directory((name.encode(), node) for name, node in entries.items())


contents = st.sampled_from(["", "1", "2"])
files = st.builds(leaf, contents, st.sampled_from([EntryType.FILE, EntryType.EXECUTABLE]))
leaves = st.one_of(
    files,
    st.builds(leaf, contents, st.just(EntryType.SYMLINK)),
    st.sampled_from([special_leaf(EntryType.FIFO), special_leaf(EntryType.SOCKET)]),
    st.sampled_from([unreadable_leaf(EntryType.FILE), unreadable_leaf(EntryType.DIRECTORY)]),
)


def directories(
    of: st.SearchStrategy[Leaf], names: tuple[bytes, ...] = RAW_NAMES
) -> st.SearchStrategy[Directory]:
    """Return trees of some leaves."""
    below: st.SearchStrategy[Node] = st.recursive(
        of,
        lambda nodes: st.dictionaries(st.sampled_from(names), nodes, max_size=4).map(Directory),
        max_leaves=8,
    )
    return st.dictionaries(st.sampled_from(names), below, max_size=5).map(Directory)


def plant_random(root: Path, seed: int, *, only_text_names: bool = False, count: int = 40) -> None:
    """Make a random tree on disk: files, links, pipes, sockets, empty directories, ignored names."""
    rng = random.Random(seed)
    names = [name.encode() for name in TEXT_NAMES] if only_text_names else list(RAW_NAMES)
    names += [b".git", b"node_modules", b"coverage", b"coverage.txt", b"venv"]
    places = [os.fsencode(root)]
    for number in range(count):
        path = rng.choice(places) + b"/" + rng.choice(names)
        if os.path.lexists(path):
            continue
        match rng.randrange(10):
            case 0 | 1 | 2:
                os.mkdir(path)
                places.append(path)
            case 3:
                os.symlink(rng.choice([b"a", b"..", b"no\xffwhere", b"/"]), path)
            case 4:
                os.mkfifo(path)
            case 5 if len(path) < 90:
                reference.bind_socket(path)
            case _:
                Path(os.fsdecode(path)).write_bytes(b"%d" % number * rng.randrange(3))
                os.chmod(path, rng.choice([0o644, 0o755, 0o600, 0o611, 0o4755]))

"""Who may import whom. A layer may use what stands below it, never what stands beside or above."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from support.source import imports, modules

# The order of an execution's stages is one piece of work in several modules, which use one another.
PIPELINE = (
    "pipeline",
    "stages",
    "settlement",
    "leftovers",
    "sealing",
    "assembly",
    "evidence",
    "observing",
    "coordination",
)
# From the top down. Names on one line are one layer; but for the pipeline's they do not import one another.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("daemon",),
    ("service",),
    ("engine",),
    PIPELINE,
    ("config", "place", "requests"),
    ("execution", "ledger", "snapshot", "approval"),
    ("workspace", "attestation"),
    ("config_file", "errors", "logs", "version"),
)
RANK = {name: len(LAYERS) - index for index, names in enumerate(LAYERS) for name in names}

GRPC = ("grpc", "grpc_health", "grpc_reflection", "google")
STUBS = ("workseal.v1",)
EDGES = ("workseal_host.service", "workseal_host.cli", "workseal.transport")

PURE = (
    *(
        f"workseal_host.workspace.{name}"
        for name in ("model", "scheme", "diff", "manifest", "ignore", "rules")
    ),
    "workseal_host.workspace.wildmatch",
    "workseal_host.ledger.states",
    "workseal.calls",
    "workseal.canonical",
    "workseal.paths",
    "workseal.receipt",
    "workseal.tools",
)
# What touches files, processes, the network, clocks or chance.
IO = (
    "asyncio",
    "fcntl",
    "glob",
    "io",
    "os",
    "pathlib",
    "random",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
)

HOST = [name for name in modules() if name.startswith("workseal_host.")]
CLIENT = [name for name in modules() if name.partition(".")[0] == "workseal"]


def beneath(name: str, packages: Iterable[str]) -> bool:
    """Tell whether a dotted name is one of some packages, or in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def piece(name: str) -> str:
    """Return the part of the host that a module belongs to."""
    return name.split(".")[1]


def found(
    names: Iterable[str], is_wrong: Callable[[str, str], bool], *, lazy: bool = True
) -> dict[str, list[str]]:
    """Return the wrong imports of some modules: module -> what it imports against the rule."""
    wrong = {
        name: sorted(target for target in imports(modules()[name], lazy=lazy) if is_wrong(name, target))
        for name in names
    }
    return {name: targets for name, targets in wrong.items() if targets}


def points_up(name: str, target: str) -> bool:
    """Tell whether a module of the host imports what stands beside or above it."""
    if not target.startswith("workseal_host."):
        return False
    own, other = piece(name), piece(target)
    together = own == other or {own, other} <= set(PIPELINE)
    return not together and RANK[other] >= RANK[own]


def test_every_part_of_the_host_has_a_layer() -> None:
    missing = {piece(name) for name in HOST} - RANK.keys()
    assert not missing, "give these a layer"


def test_layers_point_down_only() -> None:
    assert not found(HOST, points_up)


def test_only_the_edges_speak_grpc() -> None:
    inside = [name for name in modules() if not beneath(name, EDGES)]
    assert not found(inside, lambda _, target: beneath(target, GRPC))


def test_only_the_edges_and_the_client_use_generated_stubs() -> None:
    inside = [name for name in modules() if not beneath(name, (*EDGES, "workseal.client"))]
    assert not found(inside, lambda _, target: beneath(target, STUBS))


def test_the_client_imports_the_host_only_for_a_command_of_the_host() -> None:
    entry = {"workseal.cli.main": ["workseal_host.cli.app"]}
    assert found(CLIENT, lambda _, target: beneath(target, ("workseal_host",))) == entry
    assert not found(CLIENT, lambda _, target: beneath(target, ("workseal_host",)), lazy=False)


def test_pure_modules_import_nothing_that_touches_the_world() -> None:
    pure = [name for name in modules() if beneath(name, PURE)]
    assert not found(pure, lambda _, target: beneath(target, IO))


def test_every_module_that_must_be_pure_exists() -> None:
    assert set(PURE) <= modules().keys()


def test_the_base_installation_is_enough_for_the_client() -> None:
    base = {"grpc", "google", "rfc8785", "securesystemslib", "cryptography", "workseal", "workseal_host"}
    known = base | set(sys.stdlib_module_names)
    inside = [name for name in CLIENT if not beneath(name, ("workseal.integrations",))]
    assert not found(inside, lambda _, target: target.partition(".")[0] not in known)


def test_no_import_goes_round_in_a_circle() -> None:
    graph = {
        name: {target for target in imports(module, lazy=False) if target in modules() and target != name}
        for name, module in modules().items()
    }
    # A package may be asked for one of its own modules: that is no use of what the package re-exports.
    for name, targets in graph.items():
        targets -= {target for target in targets if name.startswith(f"{target}.")}
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert not sorted(graph), "in a circle, or above one"

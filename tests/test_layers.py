"""Imports point downwards only, and thinking does no I/O."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "supervisor"

# A layer may import itself and the layers before it. An entry may be a file of the package's root.
LAYERS = (
    ("model",),
    ("protocol",),
    ("adapters",),
    ("process",),
    ("recording",),
    ("trusted", "turns"),
    ("attempt",),
    ("run",),
    ("reports",),
    ("supervisor",),
    ("faults",),
    ("command", "__main__"),
)
ALONE = ("model_server",)  # imports nothing of ours, and only the command may import it
PURE = ("model", "protocol", "adapters")
IO_MODULES = {"trio", "os", "subprocess", "signal", "time", "random", "tempfile", "socket"}


def imports(path: Path) -> set[str]:
    """The full names of the modules that a file imports, those for types alone included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def breaches(package: Path) -> list[str]:
    """Every import that the table forbids."""
    rank = {name: i for i, names in enumerate(LAYERS) for name in names}
    found = []
    for path in sorted(package.rglob("*.py")):
        layer = layer_of(path, package)
        if layer == "__init__":
            continue
        for name in imports(path):
            parts = name.split(".")
            if layer in PURE and parts[0] in IO_MODULES:
                found.append(f"{path.relative_to(package)} imports {name}")
            if parts[0] != "supervisor" or len(parts) < 2:
                continue
            target = parts[1]
            if layer in ALONE or target in ALONE:
                allowed = target == layer or layer == "command"
            elif layer == "adapters" and target == "adapters":
                allowed = path.name == "__init__.py"
            else:
                allowed = rank.get(target, 0) <= rank[layer]
            if not allowed:
                found.append(f"{path.relative_to(package)} imports {name}")
    return found


def test_the_table_holds() -> None:
    assert breaches(PACKAGE) == []


def test_a_planted_breach_is_found(tmp_path: Path) -> None:
    for folder in ("model", "protocol", "adapters", "process"):
        (tmp_path / folder).mkdir()
    (tmp_path / "model" / "words.py").write_text("from supervisor.process import child\n")
    (tmp_path / "protocol" / "thinking.py").write_text("def f():\n    import os.path\n")
    (tmp_path / "adapters" / "one.py").write_text("import supervisor.adapters.two\n")
    (tmp_path / "process" / "acts.py").write_text("from supervisor.model_server import server\n")
    found = {breach.split()[0] for breach in breaches(tmp_path)}
    assert found == {
        "model/words.py",
        "protocol/thinking.py",
        "adapters/one.py",
        "process/acts.py",
    }


def test_every_part_of_the_package_has_a_layer() -> None:
    named = {name for names in LAYERS for name in names} | set(ALONE) | {"__init__"}
    assert {layer_of(path, PACKAGE) for path in PACKAGE.rglob("*.py")} <= named

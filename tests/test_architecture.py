"""The rooms of docs/architecture.md: nothing imports from below itself, and loading never runs code."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sbil"
# From the top down, as on the page; a room may import from those before it.
ROOMS = (
    ("version", "provenance", "errors", "files", "text"),
    ("statistics",),
    ("demonstrations",),
    ("dataset",),
    ("networks",),
    ("langevin",),
    ("algorithms",),
    ("devices", "keys", "checkpoint"),
    ("training",),
    ("selection",),
    ("policy",),
    ("fitting",),
    ("sklearn",),
    ("environments",),
    ("evaluation",),
    ("demonstrators",),
    ("rendering",),
    ("api",),
    ("experiments",),
    ("clinical",),
    ("reports",),
    ("cli",),
)
ORDER = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "sbil":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sbil."):
            names.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sbil.")}
    return names & set(ORDER)


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if room_of(path) not in ("__init__", "__main__")]


def test_every_room_is_on_the_list():
    assert {room_of(path) for path in FILES} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_imports_from_below_itself(path):
    below = {name for name in imported(path) if ORDER[name] > ORDER[room_of(path)]}
    assert not below


def test_learning_knows_no_environment():
    """No environment can train, stop or select a policy: the rooms that learn cannot even name one."""
    learning = {room for room in ORDER if ORDER[room] < ORDER["environments"]}
    for path in FILES:
        if room_of(path) in learning:
            assert not imported(path) & {"environments", "evaluation", "demonstrators", "experiments"}

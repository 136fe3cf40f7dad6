"""The page docs/architecture.md, its picture and the code agree; nothing imports from below itself."""

import ast
from collections import Counter

import pytest

import sbil
from sbil.cli import commands
from studies import architecture
from studies.architecture import imported, room_files, room_of

ROWS = architecture.table(architecture.PAGE.read_text())
# A room may import from the rows above its own, and from its own row.
ORDER = {room: number for number, row in enumerate(ROWS) for room in row.rooms}


def test_the_page_lists_every_room_once():
    listed = [room for row in ROWS for room in row.rooms]
    assert sorted(listed) == sorted({room_of(path) for path in room_files()})


@pytest.mark.parametrize("path", room_files(), ids=lambda path: str(path.relative_to(architecture.SOURCE)))
def test_nothing_imports_from_below_itself(path):
    below = {name for name in imported(path) if ORDER.get(name, 0) > ORDER[room_of(path)]}
    assert not below


def test_a_public_function_lies_in_the_file_of_its_name_below_its_command():
    """`check` lies with the rules for tables."""
    public = {name for name in commands() if name in sbil.__all__} - {"check"}
    assert {"train", "view", "watch", "report", "reproduce"} <= public
    for name in public:
        assert getattr(sbil, name).__module__ == f"sbil.api.{name}"
    assert not {name for name in sbil.__all__ if getattr(getattr(sbil, name), "__module__", "").startswith("sbil.cli")}


def test_a_class_has_a_name_of_its_own():
    """Every command is a `Command`. The model of the dynamics has its own steps, and ValueDICE its own triples."""
    found = Counter(
        node.name
        for path in room_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in found.items() if count > 1} == {"Command", "Steps", "Triples"}


def test_learning_knows_no_environment():
    """No environment can train, stop or select a policy: the rooms that learn cannot even name one."""
    learning = {room for room in ORDER if ORDER[room] < ORDER["environments"]}
    assert "training" in learning
    for path in room_files():
        if room_of(path) in learning:
            assert not imported(path) & {"environments", "evaluation", "demonstrators", "experiments"}


def test_the_picture_shows_the_imports():
    drawn = architecture.PICTURE.read_text()
    assert drawn == architecture.picture(), "draw it again: python -m studies.architecture"


def test_arrows_that_follow_from_others_are_left_out():
    assert architecture.reduced({0: set(), 1: {0}, 2: {0, 1}, 3: {0, 2}}) == {0: set(), 1: {0}, 2: {1}, 3: {2}}

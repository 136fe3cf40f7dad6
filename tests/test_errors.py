"""Programs outside the command line end in one line too."""

import pytest

from sbil.algorithms import as_many
from sbil.errors import UserError, program


def test_a_mistake_ends_a_program_with_one_line_and_status_2(capsys):
    def mistaken():
        raise UserError("no such thing; take another.")

    with pytest.raises(SystemExit) as leaving:
        program("returns", mistaken)
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "returns: no such thing; take another.\n"
    program("returns", lambda: None)


@pytest.mark.parametrize(
    ("name", "preset", "made", "expected"),
    [
        ("edm", "default", 300, 300),
        ("rcal", "default", None, None),
        ("dsfn", "default", 10, None),  # rounds
        ("majority", "default", 1, None),  # counted, not learned
        ("value_dice", "long", 500_000, None),
        ("unheard of", "default", 5, None),  # a policy of another version
        ("edm", "unheard of", 5, None),
    ],
)
def test_bc_beside_a_method_has_as_many_steps_of_adam_or_its_own(name, preset, made, expected):
    assert as_many(name, preset, made) == expected

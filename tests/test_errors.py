"""Programs outside the command line end in one line too."""

import pytest

from sbil.errors import UserError, program


def test_a_mistake_ends_a_program_with_one_line_and_status_2(capsys):
    def mistaken():
        raise UserError("no such thing; take another.")

    with pytest.raises(SystemExit) as leaving:
        program("returns", mistaken)
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "returns: no such thing; take another.\n"
    program("returns", lambda: None)

"""Docstrings as the docs site shows them."""

import pytest

pytest.importorskip("griffe")

from studies.docstrings import as_markdown


def test_names_become_a_list_and_the_rest_stays():
    docstring = (
        "Train it.\n\n    sbil.train(data)\n\nseed, draw_seed: seeds\n    of both.\nout: a folder.\n\nMore: here."
    )
    listed = "\n- **seed, draw_seed**: seeds\n    of both.\n- **out**: a folder.\n\nMore: here."
    assert as_markdown(docstring) == f"Train it.\n\n    sbil.train(data)\n\n{listed}"


def test_a_list_begins_after_an_empty_line():
    assert as_markdown("Words.\nseed: a number.") == "Words.\n\n- **seed**: a number."

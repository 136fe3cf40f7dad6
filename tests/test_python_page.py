"""docs/python.md: every block runs, in its order, and every public function is on the page."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sbil
from sbil.dynamics.model import learn
from sbil.portfolio import METHODS, TABLES

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text()


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page has defined at its end."""
    found: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        patch.setattr("sbil.portfolio.METHODS", METHODS[:2])  # fewer candidates of auto, and a model that learns less
        patch.setattr("sbil.portfolio.TABLES", TABLES[:2])
        patch.setattr("sbil.choosing.learn", partial(learn, updates=20))
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "docs/python.md", "exec"), found)
        found["written"] = {path.name for path in Path().iterdir()}
    return found


def test_the_page_goes_all_the_way(names):
    assert {"stays.csv", "stays.npz", "policy", "decisions.csv", "policy.onnx", "view.html"} <= names["written"]
    assert [row.method for row in names["report"].compared] == [
        "majority",
        "previous action",
        "bc",
        "logistic",
        "trees",
        "edm",
    ]
    assert names["report"].policy.provenance["settings"]["weight_decay"] == 1.0
    assert names["chosen"].selection["chosen"] in ("weight_decay=0", "weight_decay=0.1", "weight_decay=1")
    np.testing.assert_array_equal(names["bc"].logits(names["states"]), names["same"].logits(names["states"]))
    assert names["both"]["bc"].agreement.accuracy > 0.8
    assert names["again"].same
    assert names["page"].shown == 50
    assert names["live"].returns.shape == (10,)
    assert names["grid"].played[0].scores.shape == (2, 1)
    assert names["trained"].metrics["policy_loss"].shape[1] == 3


def test_every_public_name_has_a_docstring_and_is_listed_once():
    listed = (Path(sbil.__file__).parent / "__init__.pyi").read_text()
    assert len(set(sbil.__all__)) == len(sbil.__all__) == len(re.findall(r"(?m)^from ", listed))
    for name in sbil.__all__:
        assert name == "__version__" or getattr(sbil, name).__doc__
    assert set(sbil.__all__) <= set(dir(sbil))


def test_every_public_function_is_on_the_page():
    functions = [name for name in sbil.__all__ if name.islower() and not name.startswith("_")]
    assert [name for name in functions if not re.search(rf"\b{name}\b", PAGE)] == []


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="read"):
        sbil.load  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        sbil.magic  # noqa: B018

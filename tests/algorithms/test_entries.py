"""What the package knows of its algorithms: their entries, settings as values and as words, updates."""

from dataclasses import replace

import numpy as np
import pytest

from sbil import algorithms, demonstrators
from sbil.algorithms import BCConfig, as_many, candidates, configure, get, parse_words, updates_for
from sbil.api.methods import trains_energy
from sbil.errors import UserError


def test_algorithms_are_listed_in_a_fixed_order():
    assert list(algorithms.ALGORITHMS)[:3] == ["bc", "edm", "edm_robust"]
    assert list(algorithms.ALGORITHMS)[-2:] == ["majority", "random"]
    assert all(entry.name == name for name, entry in algorithms.ALGORITHMS.items())


def test_titles_of_presets():
    assert get("bc").title() == "BC"
    assert get("bc").title("decay") == "BC, weight decay 1"
    assert get("edm_exact").title("table") == "EDM, exact, table"  # a preset without a title of its own


def test_updates_are_those_of_the_preset_or_the_rounds_that_settings_allow():
    assert updates_for("value_dice", "long", [configure("value_dice", "long")], None) == 500_000
    assert updates_for("value_dice", "paper", [configure("value_dice", "paper")], None) == 10_000
    assert updates_for("bc", "default", [BCConfig()], 3) == 3
    several = [configure("dsfn", "default", {"rounds": rounds}) for rounds in (4, 6)]
    assert updates_for("dsfn", "default", several, None) == 6
    assert updates_for("dsfn", "default", several, 5) == 5
    with pytest.raises(UserError, match="its settings allow 6 rounds"):
        updates_for("dsfn", "default", several, 7)


def test_candidates_are_named_by_what_is_particular():
    found = candidates("bc", "default", {"weight_decay": [0, 1], "batch": 16, "hidden": [(8,), (4, 4)]})
    assert list(found) == [
        "weight_decay=0+hidden=8",
        "weight_decay=0+hidden=4x4",
        "weight_decay=1+hidden=8",
        "weight_decay=1+hidden=4x4",
    ]
    assert found["weight_decay=1+hidden=4x4"] == BCConfig(weight_decay=1.0, batch=16, hidden=(4, 4))
    assert list(candidates("bc")) == [""]
    with pytest.raises(UserError, match="'weight_decay'"):
        candidates("bc", "default", {"weight_decay": [0, "x"]})
    with pytest.raises(UserError, match=r"'weight_decay'.*empty list"):
        candidates("bc", "default", {"weight_decay": []})


def test_settings_are_values_of_their_types():
    words = ("weight_decay=0/.1/1e-5", "batch=16", "hidden=8/4x4")
    settings = parse_words("bc", words)
    assert settings == {"weight_decay": [0.0, 0.1, 1e-5], "batch": 16, "hidden": [(8,), (4, 4)]}
    assert list(candidates("bc", "default", settings))[2:] == [
        "weight_decay=0.1+hidden=8",
        "weight_decay=0.1+hidden=4x4",
        "weight_decay=1e-05+hidden=8",
        "weight_decay=1e-05+hidden=4x4",
    ]
    assert parse_words("value_dice", ("straight_through=true",)) == {"straight_through": True}
    assert list(candidates("value_dice", "default", {"straight_through": [True, False]})) == [
        "straight_through=true",
        "straight_through=false",
    ]
    assert configure("bc", "default", {"weight_decay": np.float64(1), "batch": np.int64(3)}) == BCConfig(
        weight_decay=1.0, batch=3
    )
    assert isinstance(configure("bc", "default", {"weight_decay": 1}).weight_decay, float)
    with pytest.raises(UserError, match="'weight_decay'"):
        candidates("bc", "default", parse_words("bc", ("weight_decay=0/x",)))
    with pytest.raises(UserError, match="unknown setting of BC 'weigth_decay'"):
        parse_words("bc", ("weigth_decay=1",))
    with pytest.raises(UserError, match="unknown setting of BC 'weigth_decay'"):
        configure("bc", "default", {"weigth_decay": 1})
    with pytest.raises(UserError, match="'weight_decay' is given more than once"):
        parse_words("bc", ("weight_decay=0/1", "weight_decay=3"))
    with pytest.raises(UserError, match="name=value"):
        parse_words("bc", ("weight_decay",))


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


def test_only_variants_of_edm_train_the_energy():
    """An algorithm says it of itself; an imported agent, or a policy of a plain network, does not."""
    trained = [name for name, entry in algorithms.ALGORITHMS.items() if entry.trains_energy]
    assert trained == ["edm", "edm_robust", "edm_exact", "edm_metropolis", "edm_imagined"]
    expert = demonstrators.get("CartPole-v1-ppo")
    for made, said in (
        ({}, False),
        ({"algorithm": "edm"}, True),
        ({"algorithm": "bc"}, False),
        ({"algorithm": "auto", "settings": {"algorithm": "edm"}}, True),
        ({"algorithm": "auto", "settings": {"algorithm": "bc"}}, False),
        ({"algorithm": "edm of somebody else"}, False),
    ):
        assert trains_energy(replace(expert, provenance=made)) is said

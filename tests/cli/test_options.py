"""The way from options of commands to keywords of the library."""

from dataclasses import dataclass

import pytest

from sbil.cli.columns import ColumnOptions
from sbil.cli.options import Written, must_not_be_given, with_options
from sbil.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Written):
    env: str = "CartPole-v1"
    seed: int | None = None


def play(environment, seed=7, overwrite=False, columns=None):
    return environment, seed, overwrite, columns


def test_options_are_passed_by_name():
    """One that was not given has the default of the library; columns go together; what is set aside is renamed."""
    found = with_options(play, Command(overwrite=True, action="dose"), aside=("env",), environment="Acrobot-v1")
    assert found == ("Acrobot-v1", 7, True, {"action": "dose"})
    assert with_options(play, Command(seed=3), aside=("env",), environment="x")[1] == 3
    assert with_options(play, Command(seed=3), aside=("env",), environment="x", seed=4)[1] == 4


def test_an_option_that_would_be_dropped_is_an_error_even_if_it_is_not_given():
    with pytest.raises(TypeError, match="play has no keyword for the option env"):
        with_options(play, Command(), environment="CartPole-v1")
    with pytest.raises(TypeError, match="the option action"):
        with_options(lambda environment, seed, overwrite: None, Command(), aside=("env",), environment="CartPole-v1")


def test_options_without_an_effect_are_refused():
    must_not_be_given(Command(env="x"), ("seed", "overwrite"), "has no effect here")
    with pytest.raises(UserError, match="--seed has no effect here; leave it out"):
        must_not_be_given(Command(seed=0), ("seed",), "has no effect here")

"""The returns of the demonstrators that ship, and their cards."""

import pytest

from sbil import demonstrators, environments
from studies.returns import card, command


def test_every_demonstrator_that_ships_is_measured_and_has_its_card():
    for name in demonstrators.names():
        environment, algorithm = name.rsplit("-", 1)
        modes = environments.returns()[environment]["demonstrators"][algorithm]
        text = (demonstrators.folder() / name / "README.md").read_text()
        assert text == card(name, demonstrators.get(name), modes)
        assert all(f"| {mode} | {found['mean']} |" in text for mode, found in modes.items())
    lander = environments.returns()["LunarLander-v3"]["demonstrators"]["ppo"]["greedy"]
    assert lander["mean"] >= 270
    assert lander["episodes"] == 1000
    rider = environments.returns()["BeamRiderNoFrameskip-v4"]["demonstrators"]["ppo"]
    assert max(found["mean"] for found in rider.values()) >= 1624


@pytest.mark.parametrize(
    ("name", "words"),
    [("CartPole-v1-dqn", "train_sb3 CartPole-v1 dqn"), ("LunarLander-v3-ppo", "train_ppo LunarLander-v3")],
)
def test_a_card_names_the_program_that_trained_its_demonstrator(name, words):
    assert command(name) == f"python -m studies.{words} --out demonstrators/"

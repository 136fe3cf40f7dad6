"""sbil evaluate: a policy folder -> live returns, or how well it matches held-out decisions and knows what is new."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbil.cli.columns import COLUMNS, ColumnOptions, tell
from sbil.cli.options import Folder, Printed, must_not_be_given, with_options
from sbil.errors import UserError

if TYPE_CHECKING:
    from sbil.api.evaluate import MatchedDecisions

EXAMPLES = (
    "sbil evaluate policy/ --env CartPole-v1 --episodes 300",
    "sbil evaluate policy/ --data held_out.csv --training stays.csv",
    "sbil evaluate policy/ --data held_out.npz --imagine --json",
)
PLAYING = ("episodes", "seed", "sampled")  # options that need --env
MATCHING = ("training", "another", "imagine", *COLUMNS)  # options that need --data


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Printed):
    """Score a finished policy: play it in an environment, or compare it with recorded decisions."""

    policy: Folder
    env: str | None = None
    """Play in this environment: CartPole-v1, Acrobot-v1, LunarLander-v3, BeamRiderNoFrameskip-v4, or a gymnasium
    environment with rows of numbers as observations and a list of actions."""
    data: str | None = None
    """Compare with the decisions in this table, NPZ file or minari:NAME. The columns are those that the policy was
    trained on."""
    training: str | None = None
    """What the policy was trained on. It adds BC, the previous action, for tables logistic regression and trees, and
    the distance to the nearest training states to the comparison."""
    another: str | None = None
    """A table of another population: how well are its states recognised as different?"""
    imagine: bool = False
    """Learn from --data what follows a decision, and let the policy act in that model: where would it go? It takes
    seconds, with --data."""
    episodes: int | None = None
    """Episodes to play, with --env (default: 300)."""
    seed: int | None = None
    """Seed of the episodes, with --env (default: 0)."""
    sampled: bool = False
    """Draw actions from the policy instead of taking the most probable one, with --env."""


def run(command: Command) -> None:
    """Score and print."""
    if (command.env is None) == (command.data is None):
        raise UserError("give --env NAME to play, or --data FILE to compare with recorded decisions (one of them).")
    if command.data:
        must_not_be_given(command, PLAYING, "has no effect with --data")
    else:
        must_not_be_given(command, MATCHING, "has no effect with --env")
    from sbil.api.evaluate import evaluate_decisions, evaluate_live
    from sbil.policy import Policy

    policy = Policy.load(command.policy)
    if command.env:
        aside = ("env", "data", *MATCHING)
        live = with_options(evaluate_live, command, aside=aside, policy=policy, environment=command.env)
        print(json.dumps(live.as_json()) if command.json else live)
        return
    result = with_options(evaluate_decisions, command, aside=("env", *PLAYING), policy=policy)
    if command.json:
        print(json.dumps(result.as_json()))
    else:
        show(result, command.training is not None)


def show(result: "MatchedDecisions", trained: bool) -> None:
    """The notes, the agreement in a line, and the tables; trained: whether the training data were given."""
    from sbil.cli import tables
    from sbil.evaluation.decided import unit_of_intervals
    from sbil.text import counted, over

    data = result.data
    tell(data.observation_names, data.provenance)
    for note in result.notes:
        print(f"note: {note}")
    print(tables.agreement_in_words(result.agreement, "recorded decision"))
    intervals = over(unit_of_intervals(data))
    tables.show_methods(result.compared, f"{counted(len(data), data.words[0])} [{intervals}]")
    tables.show_actions(result.decided, data.action_names)
    if result.familiarity:
        tables.show_familiarity(result.familiarity)
    if result.alarm:
        print(result.alarm)
    print(result.imagined or result.not_imagined)
    print(result.verdict.words)
    if not trained:
        print(
            "give --training TABLE to compare with BC, the previous action and the distance to the nearest training "
            "states"
        )

"""Choosing settings on held-out demonstrations: the folds, the losses, the choice."""

import dataclasses
from typing import get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
import sbil
from sbil.algorithms import ALGORITHMS, BCConfig, EDMConfig, bc
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.folds import folds_of, states_left
from sbil.selection import UNUSED, Candidate, select
from sbil.training import train_one

DEMONSTRATIONS = probes.demonstrations()
SPEC = spec_of(DEMONSTRATIONS)
DRAWS = [np.array([0, 1, 5]), np.array([2]), np.array([3, 4])]
DATASET = make_dataset(DEMONSTRATIONS, DRAWS)
KEYS = jax.random.split(jax.random.key(3), 3)
TINY = BCConfig(hidden=(8,), batch=8)


def choose(name, configs, updates, spec=SPEC, dataset=DATASET, **options):
    candidates = [Candidate(name, config, updates) for config in configs]
    return select(spec, candidates, dataset, KEYS[: len(dataset.labelled.size)], **options)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(2, 5))
def test_folds_share_the_steps_out(lengths, folds):
    """Every step is held out once and is then not trained on."""
    dataset = make_dataset(probes.demonstrations(lengths=tuple(lengths)), [np.arange(len(lengths))])
    found = folds_of(dataset, folds)
    held_out = [step for fold in found for step in fold.held_out]
    if sum(lengths) == 1:
        assert not found
        return
    assert sorted(held_out) == list(range(sum(lengths)))
    for fold in found:
        assert len(fold.training)
        assert sorted([*fold.training, *fold.held_out]) == list(range(sum(lengths)))
    assert len(found) == min(folds, len(lengths) if len(lengths) > 1 else sum(lengths))


def test_a_trajectory_is_never_cut_where_there_are_others():
    trajectory = np.asarray(DATASET.pool.trajectory)
    for fold in folds_of(DATASET):
        if fold.run != 1:
            assert not set(trajectory[fold.training]) & set(trajectory[fold.held_out])


def test_a_single_trajectory_is_cut_into_stretches():
    stretches = [fold.held_out for fold in folds_of(DATASET) if fold.run == 1]
    assert [len(stretch) for stretch in stretches] == [3, 3, 3]
    assert all((np.diff(stretch) == 1).all() for stretch in stretches)


def test_no_fold_sees_the_states_that_belong_to_what_it_holds_out():
    """Every third decision and every state is recorded; trajectory 3 shows only states."""
    demonstrations = probes.demonstrations(lengths=(6, 6, 6, 4))
    draws, shown = [np.array([0, 1]), np.array([2])], [np.array([0, 1, 3]), np.array([2])]
    dataset = make_dataset(demonstrations, draws, thin=3, unlabelled=shown)
    first = np.cumsum([0, *(len(t.observations) for t in demonstrations.trajectories)])
    for fold in folds_of(dataset):
        decisions = {int(dataset.pool.row[step]) for step in fold.held_out}
        expected = []
        for trajectory in shown[fold.run]:
            for row in range(first[trajectory], first[trajectory + 1]):
                step = row - first[trajectory]
                decided = trajectory in draws[fold.run] and step < 6 and step % 3 == 0
                own = row - step + min(step // 3 * 3, 3)  # the decision at or before
                if not decided and (trajectory == 3 or own not in decisions):
                    expected.append(row)
        assert states_left(dataset, fold).tolist() == expected
        assert len(expected) < int(dataset.unlabelled.size[fold.run])


def test_selection_with_states_shown():
    config = probes.small(EDMConfig)
    dataset = make_dataset(DEMONSTRATIONS, DRAWS, unlabelled=[np.array([3]), np.array([], int), np.array([0, 1])])
    found = choose("edm", [config, dataclasses.replace(config, weight=0.0)], 3, dataset=dataset)
    assert np.isfinite(found.losses).all()


def test_folds_are_two_at_least():
    with pytest.raises(UserError, match="folds"):
        folds_of(DATASET, 1)


def test_losses_are_those_of_training_fold_by_fold():
    """By hand for the run of trajectories 3 and 4: train on one, score on the other, one by one."""
    configs = [TINY, dataclasses.replace(TINY, weight_decay=5.0)]
    found = choose("bc", configs, 30)
    assert found.losses.shape == (3, 2)
    assert (found.chosen == found.losses.argmin(axis=1)).all()
    for number, config in enumerate(configs):
        total, count = 0.0, 0
        for fold, (learnt, scored) in enumerate([(4, 3), (3, 4)]):
            key = jax.random.fold_in(jax.random.fold_in(KEYS[2], UNUSED), fold)
            algorithm = bc(SPEC, config)
            program = jax.jit(lambda key, data, algorithm=algorithm: train_one(algorithm, 30, key, data)[0])
            state = program(key, make_dataset(DEMONSTRATIONS.select([learnt])))
            held_out = DEMONSTRATIONS.select([scored]).flat()
            policy = jax.nn.log_softmax(state.network(jnp.asarray(held_out.observation)))
            total -= float(policy[np.arange(len(held_out.action)), held_out.action].sum())
            count += len(held_out.action)
        assert found.losses[2, number] == pytest.approx(total / count, rel=1e-4)


def test_decay_is_chosen_where_decisions_are_coins_and_not_where_they_are_a_rule():
    rng = np.random.default_rng(0)
    trajectories = []
    for index in range(6):
        states = rng.normal(size=(20, 3)).astype(np.float32)
        rule = (states[:, 0] > 0).astype(np.int32)
        trajectories.append(Trajectory(states, rule if index < 3 else rng.integers(0, 2, 20).astype(np.int32)))
    demonstrations = Demonstrations(tuple(trajectories), ("no", "yes"))
    dataset = make_dataset(demonstrations, [np.arange(3), np.arange(3, 6)])
    configs = [BCConfig(hidden=(16,), weight_decay=decay, learning_rate=0.01) for decay in (0.0, 3.0)]
    found = choose("bc", configs, 1000, spec_of(demonstrations), dataset)
    assert found.chosen.tolist() == [0, 1]
    assert (np.abs(np.diff(found.losses, axis=1)) > 0.1).all()


def test_what_diverges_is_not_chosen():
    configs = [dataclasses.replace(TINY, learning_rate=1e30), TINY]
    found = choose("bc", configs, 30)
    assert np.isinf(found.losses[:, 0]).all()
    assert found.chosen.tolist() == [1, 1, 1]


def test_layer_sizes_can_be_chosen_and_progress_is_told():
    configs = [TINY, dataclasses.replace(TINY, hidden=(4, 4))]
    shares = []
    found = choose("bc", configs, 20, watch=lambda share, report: shares.append(share))
    assert np.isfinite(found.losses).all()
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_a_single_decision_takes_the_first_candidate():
    dataset = make_dataset(probes.demonstrations(lengths=(1,)), [np.array([0])])
    found = choose("bc", [TINY, dataclasses.replace(TINY, weight_decay=1.0)], 5, dataset=dataset)
    assert found.chosen.tolist() == [0]
    assert np.isnan(found.losses).all()


def test_folds_that_leave_nothing_to_learn_from_are_left_out():
    """Only the first trajectory has successors: without it RCAL has no triple."""
    states = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    whole, *pairs = (
        Trajectory(states, np.arange(8, dtype=np.int32) % 2),
        *(Trajectory(states[i : i + 1], np.array([i % 2], np.int32)) for i in range(2)),
    )
    demonstrations = Demonstrations((whole, *pairs), ("no", "yes"))
    dataset = make_dataset(demonstrations, [np.arange(3)])
    config = probes.small(ALGORITHMS["rcal"].config)
    found = choose("rcal", [config, config], 5, spec_of(demonstrations), dataset)
    assert np.isfinite(found.losses).all()


@pytest.mark.parametrize(
    "name", probes.by_speed(name for name, entry in ALGORITHMS.items() if entry.needs != "one-hot pairs")
)
def test_every_algorithm_can_be_selected(name):
    entry = ALGORITHMS[name]
    config = probes.small(entry.config)
    floats = [field for field, hint in get_type_hints(entry.config).items() if hint is float]
    other = dataclasses.replace(config, **{floats[0]: 2 * getattr(config, floats[0])}) if floats else config
    found = choose(name, [config, other], 3)
    assert np.isfinite(found.losses).all()
    if floats:
        assert (found.losses[:, 0] != found.losses[:, 1]).any()


def test_fit_records_what_it_chose():
    small = {"hidden": (8,), "batch": 8, "updates": 40}
    policy = sbil.fit("bc", DEMONSTRATIONS, weight_decay=[0, 50], **small)
    record = policy.provenance["selection"]
    losses = record["held_out_log_loss"]
    assert set(losses) == {"weight_decay=0", "weight_decay=50"}
    assert record["chosen"] == min(losses, key=losses.get)
    assert f"weight_decay={policy.provenance['settings']['weight_decay']:g}" == record["chosen"]
    chosen = sbil.fit("bc", DEMONSTRATIONS, weight_decay=float(record["chosen"].split("=")[1]), **small)
    np.testing.assert_array_equal(policy.network.layers[0].weight, chosen.network.layers[0].weight)

"""ICU-Sepsis: our environment against the package's own, the study's exact numbers against worked and played ones."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from sbil import algorithms, environments
from sbil.clinical import icu_sepsis as study
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrators import collect
from sbil.environments import icu_sepsis
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.experiments import TableTask
from sbil.experiments.run import run_cells
from sbil.experiments.table import cells_of_table, wanted
from sbil.training import stack

TASK = environments.get("ICU-Sepsis-v2")
HERE = find_spec("icu_sepsis") is not None
needs_package = pytest.mark.skipif(not HERE, reason="icu-sepsis is not installed")


def test_a_missing_package_is_one_line(monkeypatch):
    """The environment is on the list wherever sbil is; only playing it needs the package."""
    monkeypatch.setattr(icu_sepsis, "find_spec", lambda name: None)
    icu_sepsis.tables.cache_clear()
    icu_sepsis.steps.cache_clear()
    assert environments.get("ICU-Sepsis-v2").spec.actions == 25
    for use in (icu_sepsis.clinicians, TASK.check, lambda: TASK.reset(jax.random.key(0))):
        with pytest.raises(UserError, match=r"^ICU-Sepsis needs .*pip install 'sbil\[sepsis\]'\.$"):
            use()
    icu_sepsis.tables.cache_clear()


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_damaged_tables_are_one_line(tmp_path, monkeypatch, content):
    """Missing, or not an archive of arrays."""
    assets = tmp_path / "envs" / "assets"
    assets.mkdir(parents=True)
    if content:
        (assets / "dynamics.npz").write_bytes(content)
    monkeypatch.setattr(icu_sepsis, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    icu_sepsis.tables.cache_clear()
    with pytest.raises(UserError, match="no tables of ICU-Sepsis can be read there") as raised:
        icu_sepsis.tables()
    assert "\n" not in str(raised.value)


def test_tables_of_another_size_are_refused(tmp_path, monkeypatch):
    assets = tmp_path / "envs" / "assets"
    assets.mkdir(parents=True)
    np.savez(assets / "dynamics.npz", tx_mat=np.zeros((2, 1, 2)), d_0=np.zeros(2), expert_policy=np.zeros((2, 1)))
    monkeypatch.setattr(icu_sepsis, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    icu_sepsis.tables.cache_clear()
    with pytest.raises(UserError, match="other sizes"):
        icu_sepsis.tables()


@pytest.fixture(autouse=True)
def fresh():
    """Tables that one test replaces are not seen by the next."""
    yield
    if icu_sepsis.tables.cache_info().currsize and icu_sepsis.tables().start.shape != (716,):
        icu_sepsis.tables.cache_clear()


# Against the package


@pytest.fixture(scope="module")
def theirs():
    """The package's own environment. It brings the old gym, which complains as it is imported."""
    pytest.importorskip("icu_sepsis.envs.sepsis", exc_type=ImportError)
    from icu_sepsis.envs import ICUSepsisEnv

    return ICUSepsisEnv()


@needs_package
def test_probabilities_are_those_of_the_package(theirs):
    """Differences of our sums are the rows of the package's matrix, in single precision; 0 stays exactly 0."""
    played, dynamics = icu_sepsis.steps(), theirs.dynamics
    np.testing.assert_allclose(np.diff(played.start, prepend=0), dynamics["d_0"], atol=1e-6)
    rng = np.random.default_rng(0)
    for state in rng.choice(716, 60, replace=False):
        rows = np.diff(played.sums[played.row[state]], axis=1, prepend=0)
        np.testing.assert_allclose(rows, dynamics["tx_mat"][state], atol=1e-6)
        assert (rows[dynamics["tx_mat"][state] == 0] == 0).all()
    np.testing.assert_array_equal(icu_sepsis.tables().clinicians, theirs.expert_policy)
    assert len(played.sums) < 3000  # of 17,900


@needs_package
def test_rewards_are_those_of_the_package(theirs):
    """1 for entering survival from any state of a living patient, by any action, and 0 for everything else."""
    rewards = theirs.dynamics["r_mat"][:713]
    assert (rewards[:, :, icu_sepsis.SURVIVAL] == 1).all()
    assert rewards.sum() == 713 * 25
    np.testing.assert_array_equal(
        [theirs._is_terminal_state(s) for s in range(716)], np.arange(716) >= icu_sepsis.DEATH
    )


@needs_package
def test_actions_are_numbered_as_the_package_numbers_them(theirs):
    for action, name in enumerate(TASK.action_names):
        fluids, drugs = divmod(action, 5)
        assert theirs._get_action_idx(np.array([fluids, drugs])) == action
        assert name == f"fluids {fluids}, vasopressors {drugs}"


@needs_package
def test_drawn_successors_follow_the_row():
    """20,000 steps from one state by one action, and 20,000 beginnings (chi-squared over what is likely enough)."""
    keys = jax.random.split(jax.random.key(0), 20_000)
    state, action = 5, 3
    patients = icu_sepsis.Patient(jnp.full(20_000, state), keys)
    after, reward, terminal = jax.jit(jax.vmap(TASK.step, in_axes=(0, None)))(patients, action)
    for drawn, law in (
        (after.state, icu_sepsis.tables().transition[state, action]),
        (jax.jit(jax.vmap(TASK.reset))(keys).state, icu_sepsis.tables().start),
    ):
        counts = np.bincount(drawn, minlength=716)
        assert counts[law == 0].sum() == 0
        likely = 20_000 * law > 5
        observed = np.append(counts[likely], counts[~likely].sum())
        expected = np.append(20_000 * law[likely], 20_000 * law[~likely].sum())
        keep = expected > 0
        assert chisquare(observed[keep], observed.sum() * expected[keep] / expected.sum()).pvalue > 0.001
    np.testing.assert_array_equal(reward, after.state == 714)
    np.testing.assert_array_equal(terminal, after.state >= 713)
    assert after.key.shape == (20_000,)
    assert not np.array_equal(jax.random.key_data(after.key), jax.random.key_data(keys))


@needs_package
def test_survival_played_in_the_package_is_the_exact_one(theirs):
    """600 episodes of the clinicians' policy there: survival and length within four standard errors."""
    rng, policy = np.random.default_rng(0), icu_sepsis.tables().clinicians
    returns, lengths = [], []
    theirs.reset(seed=0)
    for _ in range(600):
        state, _ = theirs.reset()
        total, length, terminal = 0.0, 0, False
        while not terminal:
            action = rng.choice(25, p=policy[state])
            state, reward, terminal, _, _ = theirs.step(np.array(divmod(action, 5)))
            total, length = total + reward, length + 1
        returns.append(total)
        lengths.append(length)
    assert set(returns) <= {0.0, 1.0}
    assert abs(np.mean(returns) - study.survival(policy)) < 4 * np.std(returns) / np.sqrt(600)
    assert abs(np.mean(lengths) - study.visits(policy).sum()) < 4 * np.std(lengths) / np.sqrt(600)


# The clinicians, and what is known of them


@needs_package
def test_clinicians_are_a_policy_like_any_other():
    policy, truth = icu_sepsis.clinicians(), icu_sepsis.tables().clinicians
    np.testing.assert_allclose(policy.probabilities(np.eye(716, dtype=np.float32))[:713], truth[:713], atol=1e-6)
    assert policy.spec == TASK.spec


@needs_package
def test_survival_of_clinicians_and_of_uniform_actions():
    """The two numbers of docs/exact_edm.md, which hardly differ."""
    truth = icu_sepsis.tables().clinicians
    assert round(study.survival(truth), 4) == 0.7818
    assert 9.1 < study.visits(truth).sum() < 9.4
    assert round(study.survival(np.full((716, 25), 0.04)), 4) == 0.7801


@needs_package
def test_live_survival_is_the_exact_one():
    """Clinicians and uniform actions, 1,500 episodes each: within four standard errors."""
    network = icu_sepsis.clinicians().network
    policies = Policies(call, stack([network, jax.tree.map(jnp.zeros_like, network)]))
    returns = play(TASK, policies, jax.random.key(0), 1500, greedy=False)
    exact = [study.survival(icu_sepsis.tables().clinicians), study.survival(np.full((716, 25), 0.04))]
    assert set(np.unique(returns)) == {0.0, 1.0}
    assert np.abs(returns.mean(axis=1) - exact).max() < 4 * returns.std() / np.sqrt(1500)


@needs_package
def test_demonstrations_are_the_clinicians():
    """Whole episodes of one-hot rows that end in death or survival; actions are ones that clinicians take."""
    demonstrations, _ = collect(TASK, icu_sepsis.clinicians(), 20, 0, greedy=False, provenance={})
    for trajectory in demonstrations.trajectories:
        states = trajectory.observations.argmax(axis=1)
        assert (trajectory.observations.sum(axis=1) == 1).all()
        assert (states[:-1] < 713).all()
        assert trajectory.terminal
        assert states[-1] in (713, 714)
        assert (icu_sepsis.tables().clinicians[states[:-1], trajectory.actions] > 0).all()
    algorithms.require("edm_exact", make_dataset(demonstrations))
    assert spec_of(demonstrations) == TASK.spec


@needs_package
def test_uniform_actions_score_what_chance_does():
    """All decisions look alike to them: areas are those of a random order, and other scores those of 1 in 25."""
    demonstrations = study.record(20)
    task = TableTask.of("uniform", demonstrations, process=study.process(10))
    (cell,) = cells_of_table(task, wanted([study.UNIFORM], 2, baselines=[study.UNIFORM]))
    (result,) = run_cells([cell])
    scores = {metric: values.tolist() for metric, values in result.metrics.items()}
    judged = [demonstrations.split(0.2, seed)[1].flat().action for seed in range(2)]
    assert scores["accuracy"] == scores["balanced_accuracy"] == [0.04] * 2
    assert scores["auc"] == [0.5] * 2
    assert scores["apr"] == pytest.approx([1 / len(np.unique(actions)) for actions in judged])  # the mean share
    assert scores["log_loss"] == pytest.approx([np.log(25)] * 2)
    assert scores["brier"] == pytest.approx([24 / 25] * 2)
    assert scores["ece"] == [0] * 2
    assert scores["survival"] == scores["greedy_survival"] == pytest.approx([0.7801] * 2, abs=5e-5)
    assert result.diverged == 0


@needs_package
def test_loading_runs_no_code_of_the_package():
    """Its tables are read as plain arrays; its modules and the old gym are not imported."""
    import subprocess

    code = (
        "import sys; from sbil.environments import icu_sepsis; icu_sepsis.clinicians();"
        "print([name for name in ('icu_sepsis', 'gym', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"

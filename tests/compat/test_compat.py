"""Files of earlier versions are read as they were then. They are never written again; new ones are added."""

import dataclasses
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

import probes
from sbil.demonstrations.formats import npz
from sbil.experiments.store import read_all
from sbil.policy import Policy
from sbil.policy.card import card

HERE = Path(__file__).parent


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_policy_of_format(number):
    policy = Policy.load(HERE / f"policy-{number}")
    assert policy.action_names == ("give", "wait")
    assert policy.schema.episode == "visit"
    found = policy.probabilities(np.array([[0.5, 1, 0], [-1.2, 0, 1]], np.float32))
    np.testing.assert_allclose(found, [[0.7741624, 0.2258376], [0.0728781, 0.9271219]], atol=1e-5)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_what_a_policy_recorded_of_its_table_has_the_names_of_today(number):
    """They had spaces. The card shows them as it did."""
    policy = Policy.load(HERE / f"policy-{number}")
    source = policy.provenance["data"]["provenance"]
    assert (source["rows_in_file"], source["sorted_rows"], source["filled_values"]) == (24, False, {})
    assert not any(" " in name for name in source)
    assert "- rows in file: 24\n" in card(policy)


def test_demonstrations_of_a_table_have_the_names_of_today(tmp_path):
    made = probes.demonstrations()
    earlier = {"rows in file": 9, "left out columns": ["sex"], "my own note": 1}
    npz.save(dataclasses.replace(made, provenance=earlier), tmp_path / "demos.npz")
    found = npz.load(tmp_path / "demos.npz").provenance
    assert found == {"rows_in_file": 9, "left_out_columns": ["sex"], "my own note": 1}


def test_a_policy_of_format_1(tmp_path):
    """Format 1 had no temperature, no energies and no schema; the rest is that of format 2."""
    described = json.loads((HERE / "policy-2" / "policy.json").read_text())
    weights = load_file(HERE / "policy-2" / "weights.safetensors")
    content = save({name: value for name, value in weights.items() if name != "energies"})
    (tmp_path / "weights.safetensors").write_bytes(content)
    kept = {name: value for name, value in described.items() if name not in ("temperature", "energies", "schema")}
    kept |= {"version": 1, "weights_sha256": sha256(content).hexdigest()}
    (tmp_path / "policy.json").write_text(json.dumps(kept))
    policy = Policy.load(tmp_path)
    assert policy.schema is None
    found = policy.probabilities(np.array([[0.5, 1, 0], [-1.2, 0, 1]], np.float32))
    np.testing.assert_allclose(found, [[0.7741624, 0.2258376], [0.0728781, 0.9271219]], atol=1e-5)


def test_the_guard_of_format_4():
    policy = Policy.load(HERE / "policy-4")
    states = np.array([[0.5, 1, 0], [99, 0, 1], [0, 0.5, 0.5]], np.float32)
    assert policy.outside_names(states) == [(), ("dose",), ("ward=a", "ward=b")]
    assert policy.percentile(states)[1] == 100
    assert policy.guard.measure.name == "distance"
    for number in (2, 3):
        assert Policy.load(HERE / f"policy-{number}").guard is None


def test_demonstrations_of_format_1():
    demonstrations = npz.load(HERE / "demonstrations-1.npz")
    assert demonstrations.lengths.tolist() == [64]
    (trajectory,) = demonstrations.trajectories
    assert trajectory.actions[:8].tolist() == [0, 0, 0, 0, 0, 2, 2, 2]
    np.testing.assert_allclose(trajectory.observations[0, :2], [0.99833983, -0.05759891], rtol=1e-6)


def test_a_cell_of_format_2():
    (result,) = read_all([HERE / "cell-2.parquet"])
    assert str(result.cell) == "CartPole-v1-ppo-sampled-thin20 bc n=1"
    assert result.returns.tolist() == [[10, 12], [10, 10]]
    assert result.scores.ravel().tolist() == pytest.approx([-0.0136459, -0.0157188], abs=1e-6)
    assert result.metrics["held_out_error"].tolist() == [0.5, 0.5]

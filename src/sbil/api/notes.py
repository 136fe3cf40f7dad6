"""Reasons why the scores of a policy may say less than they seem to: decisions that were learned from."""

from collections.abc import Mapping
from typing import Any

from sbil.api.methods import algorithm_of
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.fingerprint import fingerprint, twins
from sbil.policy import Policy
from sbil.portfolio import classifiers_beside
from sbil.text import counted


def notes(policy: Policy, held_out: Demonstrations, training: Demonstrations | None) -> list[str]:
    """Reasons why scores may say less than they seem to."""
    known = policy.provenance.get("data", {})
    found = notes_on_held_out(held_out, known)
    if training is None:
        return found
    learned = {"bc", *classifiers_beside(training)} - {algorithm_of(policy)}
    found += _notes_on_training(held_out, training, known)
    if learned and policy.temperature != 1:
        found.append(
            "the policy's probabilities were calibrated and those of the methods beside it were not: log-loss, Brier "
            "score and ECE are not compared on equal terms"
        )
    return found


def notes_on_held_out(held_out: Demonstrations, known: Mapping[str, Any]) -> list[str]:
    """Whether the decisions that are scored were learned from."""
    scored = fingerprint(held_out)
    if scored == known.get("sha256"):
        return ["the policy was trained on these decisions: the scores say nothing about new ones"]
    if scored == known.get("sha256_of_held_out"):
        return []
    file = held_out.provenance.get("sha256")  # the same bytes, whatever was left out of either table
    if scored == known.get("sha256_of_all") or (file and file == known.get("provenance", {}).get("sha256")):
        return ["the policy was trained on a part of these decisions: the scores are too good for new ones"]
    return []


def _notes_on_training(held_out: Demonstrations, training: Demonstrations, known: Mapping[str, Any]) -> list[str]:
    """Whether what the policy is compared with learned from other decisions than the policy."""
    found, others, word = [], "the methods beside the policy", held_out.words[0]
    if shared := twins(held_out, training):
        found.append(
            f"{shared:,} of {counted(len(held_out), word)} that are scored are in the training data too, with the same "
            f"values: {others} know them, and so do the nearest training states"
        )
    if "sha256" not in known or fingerprint(training) == known["sha256"]:
        return found
    if len(training) == known.get("trajectories"):
        return [*found, "the training data are not what the policy was trained on (their hash differs)"]
    count = counted(len(training), word)
    return [*found, f"{others} learned from {count}, the policy from {known.get('trajectories')}"]

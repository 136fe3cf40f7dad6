"""A finished policy, its folder, its card, and its ONNX file."""

from sbil.dataset import Standardisation
from sbil.policy.folder import DESCRIPTION, WEIGHTS
from sbil.policy.policy import Policy

__all__ = ["DESCRIPTION", "WEIGHTS", "Policy", "Standardisation"]

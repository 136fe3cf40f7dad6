"""A finished policy: what it does, the folder it is kept in, its card, and its form for other programs."""

from sbil.dataset import Standardisation
from sbil.policy.folder import DESCRIPTION, WEIGHTS
from sbil.policy.policy import Policy

__all__ = ["DESCRIPTION", "WEIGHTS", "Policy", "Standardisation"]

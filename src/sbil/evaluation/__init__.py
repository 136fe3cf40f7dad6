"""How good a finished policy is: live returns."""

from sbil.evaluation.live import Policies, call, play

__all__ = ["Policies", "call", "play"]

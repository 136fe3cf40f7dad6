"""How good a finished policy is: live returns."""

from sbil.evaluation.live import Policies, call, evaluate

__all__ = ["Policies", "call", "evaluate"]

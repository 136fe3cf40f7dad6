"""Agents of Stable-Baselines3 as policies: their files are read without torch and without running anything in them."""

from sbil.demonstrators.sb3.agent import import_agent

__all__ = ["import_agent"]

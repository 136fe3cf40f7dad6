"""Simulators outside JAX: gymnasium in worker processes, Atari in threads.

Worker processes import `worker` and what it needs, and none of these modules imports JAX at its top.
"""

"""Playing in simulators outside JAX: gymnasium in worker processes, Atari in threads.

Worker processes import from here alone: nothing at the top of this package imports JAX.
"""

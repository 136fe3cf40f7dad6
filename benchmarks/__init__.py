"""Benchmarks of sbil: speed, scaling, memory and determinism, each measured by `python -m benchmarks`."""

"""Benchmarks: `python -m tests.benchmarks` and `python -m tests.benchmarks.overhead`."""

"""Puts a worker into its cgroup, before anything is imported."""

from tests.benchmarks.memory import groups

groups.join()

"""Programs larger than memory: ``python -m tests.benchmarks.memory``, see `__main__`."""

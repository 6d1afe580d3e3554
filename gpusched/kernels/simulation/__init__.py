"""Raw kernels in plain Python, with all threads of a block: slow, and it sees what goes wrong."""

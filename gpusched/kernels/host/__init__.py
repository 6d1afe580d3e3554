"""Raw kernels compiled for the CPU: the threads of a block in turn, from barrier to barrier."""

"""Programs whose chunks are on a GPU, NVIDIA's or the emulated one."""

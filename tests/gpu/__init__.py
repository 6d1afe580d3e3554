"""Programs whose chunks lie on a GPU, NVIDIA's or the emulated one."""
